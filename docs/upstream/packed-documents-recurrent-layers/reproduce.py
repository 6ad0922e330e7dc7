"""Recurrent layers carry state from one packed document into the next.

    python reproduce.py

Two documents are packed into one row, told apart by `position_ids`. Prints how far the second
one's logits move when only the first one's tokens change: zero is expected.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor
from transformers import (
    NemotronHConfig,
    NemotronHForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

FIRST, SECOND, VOCABULARY = 100, 156, 512
SHARED = {"vocab_size": VOCABULARY, "hidden_size": 64, "head_dim": 16}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def models() -> dict[str, PreTrainedModel]:
    attention = Qwen3Config(**SHARED, **HEADS, num_hidden_layers=2, intermediate_size=128)
    delta_net = Qwen3_5TextConfig(
        **SHARED,
        **HEADS,
        num_hidden_layers=4,
        intermediate_size=128,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
    )
    mamba2 = NemotronHConfig(
        **SHARED,
        **HEADS,
        layers_block_type=["mamba", "attention"],
        mamba_num_heads=8,
        mamba_head_dim=16,
        ssm_state_size=16,
        n_groups=2,
        chunk_size=64,
    )
    return {
        "qwen3 (attention only)": Qwen3ForCausalLM(attention),
        "qwen3_5 (gated delta net)": Qwen3_5ForCausalLM(delta_net),
        "nemotron_h (mamba2)": NemotronHForCausalLM(mamba2),
    }


def second_documents_logits(model: PreTrainedModel, tokens: Tensor, **kwargs: Tensor) -> Tensor:
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None]
    out = model(input_ids=tokens, position_ids=positions, use_cache=False, **kwargs)
    return out.logits[0, FIRST:]


@torch.no_grad()
def main() -> None:
    logging.set_verbosity_error()
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (1, FIRST + SECOND))
    changed = tokens.clone()
    changed[:, :FIRST] = torch.randint(VOCABULARY, (1, FIRST))
    for name, model in models().items():
        before, after = (second_documents_logits(model, row) for row in (tokens, changed))
        moved = (before - after).abs().amax(-1)
        print(
            f"{name}: largest move {moved.max():.2g} of logits up to {before.abs().max():.2g}, "
            f"{(moved > 0).sum()} of {SECOND} positions moved"
        )
    boundaries = torch.cat([torch.zeros(FIRST), torch.ones(SECOND)])[None].int()
    for name, model in models().items():
        try:
            second_documents_logits(model, tokens, seq_idx=boundaries)
        except ValueError as error:
            print(f"{name} with seq_idx: ValueError: {error}")


if __name__ == "__main__":
    main()
