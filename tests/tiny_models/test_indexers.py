"""The sparse attentions really leave keys out, on the documents that the sweep trains on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tiny_models
from tiny_models import tokenizer

Chats = list[list[dict[str, str]]]
INDEXED = ["deepseek_v4", "glm_moe_dsa", "qwen4_exp"]
SHARE = 0.60
# Tokens a row at each scale: a longer document is cut there.
ROW = {"nano": 512, "tiny": 2048}


def reach(config: Any) -> tuple[int, int]:
    """Tokens a candidate stands for, and how many candidates a query picks."""
    if config.model_type == "deepseek_v4":
        return config.compress_rates["compressed_sparse_attention"], config.index_topk
    if config.model_type == "qwen4_exp_text":
        ratio = config.indexer_compress_ratio
        return ratio, config.indexer_budget // ratio
    return 1, config.index_topk


def lengths(model: tiny_models.TinyModel, config: Any, chats: Chats, row: int) -> list[int]:
    words = tokenizer.build(model.chat, config.vocab_size)
    whole = words.apply_chat_template(chats, return_dict=True)["input_ids"]
    return [min(len(tokens), row) for tokens in whole]


def dropping(config: Any, documents: list[int]) -> float:
    """Share of query tokens with more candidates than picks."""
    stride, picks = reach(config)
    more = [(at + 1) // stride > picks for length in documents for at in range(length)]
    return sum(more) / len(more)


@pytest.mark.parametrize("scale", ["nano", "tiny"])
@pytest.mark.parametrize("arch", INDEXED)
def test_most_query_tokens_of_the_suite_have_more_candidates_than_picks(
    arch: str, scale: str, suite_chats: Chats, record_property: Callable[[str, object], None]
) -> None:
    model = tiny_models.get(arch)
    config = model.config(scale)
    share = dropping(config, lengths(model, config, suite_chats, ROW[scale]))
    record_property("share of query tokens that drop keys", round(share, 3))
    print(f"{arch} {scale}: {share:.0%} of query tokens drop keys in rows of {ROW[scale]}")
    assert share >= SHARE


@pytest.mark.parametrize("arch", INDEXED)
def test_the_published_picks_would_drop_nothing(arch: str, suite_chats: Chats) -> None:
    model = tiny_models.get(arch)
    documents = lengths(model, model.config("tiny"), suite_chats, ROW["tiny"])
    assert dropping(model.published_config(), documents) == 0


@pytest.mark.parametrize("arch", INDEXED)
def test_a_document_of_the_stated_length_drops_keys_for_most_query_tokens(arch: str) -> None:
    model = tiny_models.get(arch)
    for scale, length in model.document_tokens.items():
        assert dropping(model.config(scale), [length]) >= SHARE, scale


@pytest.mark.parametrize("arch", INDEXED)
def test_the_indexer_picks_as_many_as_it_may_and_leaves_the_rest_out(
    arch: str, load: Callable[[str], tuple[Any, dict[str, Any]]]
) -> None:
    """Counted at the indexer's output while the model runs, two documents to the row."""
    model, _ = load(arch)
    indexer = next(m for n, m in model.named_modules() if n.endswith("indexer"))
    seen: list[torch.Tensor] = []
    handle = indexer.register_forward_hook(lambda _m, _a, out: seen.append(out))
    ids = torch.arange(144).unsqueeze(0) * 13 % model.config.vocab_size
    try:
        with torch.no_grad():
            model(input_ids=ids, position_ids=positions(96, 48), use_cache=False)
    finally:
        handle.remove()
    stride, most = reach(model.config)
    expected = torch.clamp((positions(96, 48)[0] + 1) // stride, max=most)
    assert torch.equal(picked(arch, seen[0], positions(96, 48)[0]), expected)


def positions(*documents: int) -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in documents]).unsqueeze(0)


def picked(arch: str, output: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Candidates that each query keeps, from what its indexer returned."""
    if arch == "deepseek_v4":  # [1, S, k] compressed entries, -1 where there is none
        return (output[0] >= 0).sum(-1)
    if arch == "glm_moe_dsa":  # [1, S, k] keys; those a mask hides fill up the picks of the first
        start = torch.arange(len(at)) - at
        query = torch.arange(len(at)).unsqueeze(1)
        visible = (output[0] >= start.unsqueeze(1)) & (output[0] <= query)
        return visible.sum(-1)
    blocks = output[0, 0].sum(-1) - (at + 1) % 4  # [1, 1, S, S] keys, with the open block's
    return blocks // 4
