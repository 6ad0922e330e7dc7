"""gpt_oss lets packed documents see each other: its masks are built without positions.

    python reproduce.py

Runs a small random gpt_oss, and qwen3_moe for comparison, on two documents packed into one row by
`position_ids`. Prints how far the second one's logits move when the first one's tokens change.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForCausalLM, GptOssConfig, PreTrainedConfig, Qwen3MoeConfig

FIRST, SECOND, VOCABULARY = 30, 20, 256
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts_per_tok": 2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


@torch.no_grad()
def moved(config: PreTrainedConfig, implementation: str) -> torch.Tensor:
    """[second] how far each of the second document's logits moved."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None]
    tokens = torch.randint(0, VOCABULARY, positions.shape)
    changed = tokens.clone()
    changed[:, :FIRST] = torch.randint(0, VOCABULARY, (1, FIRST))
    before, after = (
        model(input_ids=x, position_ids=positions, use_cache=False).logits
        for x in (tokens, changed)
    )
    return (after - before).abs().amax(-1)[0, FIRST:]


def main() -> None:
    gpt_oss = GptOssConfig(**SIZES, num_local_experts=4, sliding_window=16)
    qwen3_moe = Qwen3MoeConfig(**SIZES, num_experts=4)
    for config, implementation in ((gpt_oss, "eager"), (qwen3_moe, "sdpa")):
        logits = moved(config, implementation)
        print(
            f"{config.model_type}: {(logits > 0).sum()} of {SECOND} positions of the second "
            f"document moved, by up to {logits.max():.2g}"
        )


if __name__ == "__main__":
    main()
