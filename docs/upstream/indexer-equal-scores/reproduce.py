"""Indexers meet keys of equal score, zero, and which of them are picked is left to chance.

    python reproduce.py

Takes the indexers of glm_moe_dsa and qwen4_exp with random weights. Prints how many of the queries
that have to choose meet a tie at the edge of their picks, and how many pick other keys when the
same document is computed with padding behind it, which no query sees.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import GlmMoeDsaConfig, Qwen4ExpTextConfig
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen4

LENGTH, PADDING, KEYS = 160, 64, 32
HIDDEN = 64


def glm_mask(length: int) -> Tensor:
    """[length, length] the keys that GLM's indexer picks."""
    config = GlmMoeDsaConfig(
        hidden_size=HIDDEN,
        q_lora_rank=32,
        qk_rope_head_dim=16,
        index_n_heads=4,
        index_head_dim=32,
        index_topk=KEYS,
        num_hidden_layers=1,
        num_attention_heads=4,
    )
    torch.manual_seed(0)
    indexer = glm.GlmMoeDsaIndexer(config, 0)
    rotary = torch.outer(torch.arange(length), 1e4 ** -torch.arange(0, 1, 1 / 8)).repeat(1, 2)
    states, residual = tokens(length, HIDDEN), tokens(length, 32)
    causal = torch.ones(1, length, length, dtype=torch.bool).tril()
    picks = indexer(states, residual, (rotary.cos()[None], rotary.sin()[None]), causal, None)
    return torch.zeros_like(causal).scatter(-1, picks.long(), True)[0] & causal[0]


def qwen4_mask(length: int) -> Tensor:
    """[length, length] the keys that Qwen4's indexer picks."""
    config = Qwen4ExpTextConfig(
        hidden_size=HIDDEN,
        head_dim=32,
        indexer_n_heads=4,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=KEYS,
        indexer_compress_ratio=4,
        eos_token_id=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
        | {"partial_rotary_factor": 0.25},
    )
    torch.manual_seed(0)
    indexer = qwen4.Qwen4ExpTextQSAIndexer(config, 0)
    states = tokens(length, HIDDEN)
    rotary = qwen4.Qwen4ExpTextRotaryEmbedding(config)(states, torch.arange(length)[None])
    causal = torch.ones(1, 1, length, length, dtype=torch.bool).tril()
    return (indexer(states, rotary, causal, None) & causal)[0, 0]


def tokens(length: int, width: int) -> Tensor:
    """The same document whatever is behind it."""
    return torch.randn(1, LENGTH + PADDING, width, generator=torch.Generator().manual_seed(1))[
        :, :length
    ]


def ties(mask: Callable[[int], Tensor]) -> tuple[int, int]:
    """Queries that choose, and those of them whose last pick scores what the first dropped does."""
    edges: list[bool] = []
    topk = torch.Tensor.topk

    def watched(scores: Tensor, k: int, dim: int) -> object:
        if scores.shape[dim] > k:
            ordered = scores.sort(dim=dim, descending=True).values.movedim(dim, -1)
            ordered = ordered.reshape(-1, scores.shape[dim])
            choosing = ordered[:, k] > -torch.inf
            edges.extend((ordered[:, k - 1] == ordered[:, k])[choosing].tolist())
        return topk(scores, k, dim=dim)

    torch.Tensor.topk = watched  # type: ignore[method-assign, assignment]
    try:
        mask(LENGTH)
    finally:
        torch.Tensor.topk = topk  # type: ignore[method-assign]
    return len(edges), sum(edges)


@torch.no_grad()
def main() -> None:
    for name, mask in (("glm_moe_dsa", glm_mask), ("qwen4_exp", qwen4_mask)):
        choosing, tied = ties(mask)
        other = (mask(LENGTH) != mask(LENGTH + PADDING)[:LENGTH, :LENGTH]).any(-1).sum()
        print(
            f"{name}: of {choosing} queries that choose {tied} meet a tie; {other} pick other keys "
            "with padding behind"
        )


if __name__ == "__main__":
    main()
