"""nemotron_h's FSDP plan names modules that it does not have.

    python reproduce.py

Builds a small llama and a small nemotron_h without memory, and prints which rules of their plans
name a module, and what the others leave to the root's group.
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, NemotronHConfig, PreTrainedConfig

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "head_dim": 8}


def rules(config: PreTrainedConfig) -> tuple[list[str], list[str]]:
    """The rules that name no module, and the parameters that none names."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    modules = dict(model.named_modules())
    plan = [rule.removesuffix(".*") for rule in model.fsdp_plan]
    left = [
        name
        for name, _ in model.named_parameters()
        if not name.startswith(tuple(f"{p}." for p in plan))
    ]
    return [rule for rule in plan if rule not in modules], left


def main() -> None:
    for config in (
        LlamaConfig(**SMALL, num_hidden_layers=1),
        NemotronHConfig(**SMALL, layers_block_type=["mamba"], mamba_num_heads=4, n_groups=2),
    ):
        unused, left = rules(config)
        print(f"{config.model_type}: rules for nothing {unused}, left to the root {left}")


if __name__ == "__main__":
    main()
