"""A parameter that an architecture freezes is trainable once it was loaded on one process.

    python reproduce.py

Prints whether laguna's correction bias requires a gradient, as built and as loaded.
"""

from __future__ import annotations

import tempfile

from transformers import AutoModelForCausalLM, LagunaConfig, PreTrainedModel


def is_trainable(model: PreTrainedModel) -> bool:
    return model.get_parameter("model.layers.1.mlp.gate.e_score_correction_bias").requires_grad


def main() -> None:
    config = LagunaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    built = AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        built.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder)
    print("built ", is_trainable(built))
    print("loaded", is_trainable(loaded))


if __name__ == "__main__":
    main()
