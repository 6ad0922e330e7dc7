"""qwen4_exp's indexer loops over queries in Python, which breaks the compiler's graph.

    python reproduce.py

Runs one indexer (`Qwen4ExpTextQSAIndexer`) on rows of two lengths. Prints the graph breaks that
torch.compile meets in it, and seconds of a forward.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import time

import torch
from torch import Tensor
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextQSAIndexer,
    Qwen4ExpTextRotaryEmbedding,
)


def small() -> Qwen4ExpTextConfig:
    return Qwen4ExpTextConfig(
        hidden_size=64,
        head_dim=32,
        indexer_n_heads=4,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=32,
        indexer_compress_ratio=4,
        eos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
        | {"partial_rotary_factor": 0.25},
    )


def inputs(config: Qwen4ExpTextConfig, length: int) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    hidden = torch.randn(1, length, config.hidden_size)
    rotary = Qwen4ExpTextRotaryEmbedding(config)(hidden, torch.arange(length)[None])
    return hidden, rotary, torch.ones(1, 1, length, length, dtype=torch.bool).tril()


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    config = small()
    indexer = Qwen4ExpTextQSAIndexer(config, layer_idx=0)
    found = torch._dynamo.explain(indexer)(*inputs(config, 8), None)
    print(f"8 tokens: {found.graph_count} graphs, {found.graph_break_count} graph breaks")
    for length in (512, 2048):
        arguments = inputs(config, length)
        started = time.perf_counter()
        indexer(*arguments, None)
        print(f"{length} tokens: {time.perf_counter() - started:.2g} s a forward")


if __name__ == "__main__":
    main()
