"""Documents, packed: nothing is lost, nothing leaks, and every layout gets the same batches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from scripts import make_documents
from sft import data
from sft.config import DataConfig
from sft.context.sequence import document_ids
from sft.data import IGNORED, Document, Loader, Row
from sft.errors import ConfigError

PAD = 0
SEQ = 16
documents = st.lists(
    st.lists(st.tuples(st.integers(1, 99), st.integers(0, 1)), min_size=1, max_size=24).map(
        lambda pairs: Document([t for t, _ in pairs], [m for _, m in pairs])
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def shipped(checkpoint: Callable[[str], Path]) -> list[Row]:
    """The documents that ship, as the suite packs them."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("qwen3_moe"))
    return data.pack(data.render(data.read_chats(None), tokenizer), DataConfig().seq_len, PAD)


def trained(row: Row) -> int:
    return int((row["labels"] != IGNORED).sum())


@given(documents)
def test_packing_keeps_every_token_in_order(docs: list[Document]) -> None:
    rows = data.pack(docs, SEQ, PAD)
    packed = [t for row in rows for t in row["input_ids"].tolist() if t != PAD]
    assert packed == [t for d in docs for t in d.tokens[:SEQ]]
    assert all(len(row["input_ids"]) == SEQ for row in rows)


@given(documents)
def test_a_label_is_the_next_token_of_the_same_document(docs: list[Document]) -> None:
    for row in data.pack(docs, SEQ, PAD):
        ids = document_ids(row["position_ids"][None])[0]
        for place in (row["labels"] != IGNORED).nonzero().flatten().tolist():
            assert row["labels"][place] == row["input_ids"][place + 1]
            assert ids[place] == ids[place + 1]


@given(documents)
def test_positions_restart_with_each_document_and_padding_is_one_more(docs: list[Document]) -> None:
    rows = data.pack(docs, SEQ, PAD)
    starts = sum(int((row["position_ids"] == 0).sum()) for row in rows)
    padded = sum(bool(row["input_ids"][-1] == PAD) for row in rows)
    assert starts == len(docs) + padded


def test_only_the_assistants_tokens_are_trained_on(checkpoint: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    chat = [{"role": "user", "content": "two plus two"}, {"role": "assistant", "content": "four"}]
    (document,) = data.render([chat], tokenizer)
    labels = [label for label in document.labels() if label != IGNORED]
    text = tokenizer.decode(labels)
    assert "four" in text
    assert "two" not in text


def test_a_template_that_marks_no_turn_is_refused(checkpoint: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(ConfigError, match="generation"):
        data.render([[{"role": "assistant", "content": "four"}]], tokenizer)


@pytest.mark.parametrize("line", ["not json", "[]", '{"text": "no messages"}'])
def test_a_line_that_is_no_chat_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": []}) + "\n" + line + "\n")
    with pytest.raises(ConfigError, match=r"chats\.jsonl:2 is not"):
        data.read_chats(str(path))


def test_a_line_ends_where_json_lines_do_and_not_inside_of_its_strings(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": "one\u2028two\x85three\x0b"}], [{"role": "user"}]]
    path = tmp_path / "chats.jsonl"
    lines = [json.dumps({"messages": chat}, ensure_ascii=False) for chat in chats]
    path.write_text("\r\n".join(lines) + "\n", encoding="utf-8")
    assert data.read_chats(str(path)) == chats


def test_a_data_file_of_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text('{"messages": "caf\xe9"}', encoding="latin-1")
    with pytest.raises(ConfigError, match=r"chats\.jsonl is not UTF-8 at byte 17"):
        data.read_chats(str(path))


@pytest.mark.parametrize(
    ("chat", "said"),
    [
        ([{"role": "owner", "content": "four"}], "unknown role owner, use one of system"),
        ([], "empty conversation"),
        (["four"], "should be dicts"),
        (
            [{"role": "assistant", "content": [{"type": "image_url"}]}],
            "a part of type image_url in its content, where only text is trained on",
        ),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add"}}]}],
            "no place for tool_calls",
        ),
        (
            [{"role": "assistant", "content": "four", "reasoning_content": "two and two"}],
            "no place for reasoning_content",
        ),
    ],
)
def test_a_chat_that_cannot_be_rendered_is_named(
    checkpoint: Callable[[str], Path], chat: Any, said: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    whole = [{"role": "assistant", "content": "four"}]
    with pytest.raises(ConfigError, match=f"refuses document 2: .*{said}"):
        data.render([whole, chat], tokenizer)


def test_text_in_parts_is_trained_on_as_text(checkpoint: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    parts = [{"type": "text", "text": "fo"}, {"type": "text", "text": "ur"}]
    whole, joined = (
        data.render([[{"role": "assistant", "content": content}]], tokenizer)
        for content in ("four", parts)
    )
    assert whole == joined


def test_what_a_template_has_a_place_for_reaches_it(checkpoint: Callable[[str], Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    tokenizer.chat_template = (
        "{% for m in messages %}{% generation %}{{ m['reasoning_content'] }}{{ m['content'] }}"
        "{{ m['tool_calls'][0]['function']['name'] }}{% endgeneration %}{% endfor %}"
    )
    calls = [{"function": {"name": "add"}}]
    said = {"content": None, "reasoning_content": "two and two", "tool_calls": calls}
    (document,) = data.render([[{"role": "assistant", **said}]], tokenizer)
    assert tokenizer.decode(document.tokens) == "two and twoadd"


def test_a_template_that_makes_no_token_of_a_chat_is_named(
    checkpoint: Callable[[str], Path],
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("llama"))
    tokenizer.chat_template = (
        "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}"
    )
    chats = [[{"role": "assistant", "content": text}] for text in ("four", "")]
    with pytest.raises(ConfigError, match="makes no token of document 2; leave it out"):
        data.render(chats, tokenizer)


def test_tools_that_no_template_is_given_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": [], "tools": [{"name": "add"}]}))
    with pytest.raises(ConfigError, match=r"chats\.jsonl:1 has tools"):
        data.read_chats(str(path))


@given(documents)
def test_only_documents_that_lose_all_they_train_on_are_left_out(docs: list[Document]) -> None:
    learning = Document([1, 2], [0, 1])
    kept = data.without_cut_off([*docs, learning], SEQ)
    assert kept == [
        d
        for d in [*docs, learning]
        if set(d.labels()) == {IGNORED}
        or set(Document(d.tokens[:SEQ], d.trained[:SEQ]).labels()) != {IGNORED}
    ]


def test_padding_is_marked() -> None:
    for row in data.pack([Document([7] * 5, [1] * 5), Document([7] * 12, [1] * 12)], SEQ, PAD):
        assert torch.equal(row["padding"], row["input_ids"] == PAD)


def test_a_data_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        data.read_chats(str(tmp_path / "none.jsonl"))


def test_too_few_rows_for_a_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match="the data fill 5 rows"):
        loader(shards=1, rows=5, batch=8)


def numbered_rows(count: int) -> list[Row]:
    keys = ("input_ids", "labels", "position_ids", "padding")
    return [{key: torch.full((4,), n) for key in keys} for n in range(count)]


def loader(shards: int, shard: int = 0, rows: int = 21, batch: int = 4) -> Loader:
    return Loader(numbered_rows(rows), DataConfig(global_batch=batch), shards, shard)


def steps(loader: Loader, count: int) -> list[set[int]]:
    return [set(b["input_ids"][:, 0].tolist()) for b in itertools.islice(loader, count)]


@pytest.mark.parametrize("shards", [2, 4])
def test_every_layout_trains_on_the_same_rows_at_each_step(shards: int) -> None:
    whole = steps(loader(1), 12)  # past the end of the first epoch
    dealt = [steps(loader(shards, shard), 12) for shard in range(shards)]
    assert [set().union(*shares) for shares in zip(*dealt, strict=True)] == whole
    assert whole[:5] != whole[5:10], "each epoch has its own order"


@pytest.mark.parametrize("done", [1, 4, 5, 7])
def test_a_restored_loader_goes_on_where_the_saved_one_was(done: int) -> None:
    expected = steps(loader(2, 1), done + 6)[done:]
    saved, restored = loader(2, 1), loader(2, 1)
    batches = iter(saved)
    for _ in range(done):
        next(batches)
    restored.load_state_dict(saved.state_dict())
    assert steps(restored, 6) == expected


def test_no_row_is_left_over_in_every_epoch() -> None:
    assert len(set().union(*steps(loader(1), 5))) == 20, "one of 21 rows does not fill a batch"
    assert set().union(*steps(loader(1), 40)) == set(range(21))


def test_iterating_draws_nothing_from_the_global_generator() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    steps(loader(1), 7)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_shipped_documents_are_what_the_script_writes() -> None:
    assert data.read_chats(None) == make_documents.documents()


def test_the_shipped_rows_let_faults_show(shipped: list[Row]) -> None:
    counts = [trained(row) for row in shipped]
    assert 0 in counts, "a row in which nothing is trained on"
    assert len(set(counts)) > len(counts) // 2, "ranks have different token counts"
    assert any(row["input_ids"][-1] == PAD for row in shipped), "padded rows"
    assert len({data.digest(row) for row in shipped}) == len(shipped), "all rows differ"
    lengths = torch.cat([documents_of(row) for row in shipped])
    assert lengths.min() < 64
    assert lengths.max() >= 256, "longer than the windows and compression of the nano models"
    assert sum(len(documents_of(row)) > 1 for row in shipped) > len(shipped) // 2
    assert len(shipped) < 8 * DataConfig().global_batch, "a resume case wraps an epoch"


def documents_of(row: Row) -> torch.Tensor:
    return document_ids(row["position_ids"][None])[0].bincount()


def test_a_digest_tells_batches_apart_and_is_the_same_for_the_same() -> None:
    first, second = numbered_rows(2)
    assert data.digest(first) == data.digest({k: v.clone() for k, v in first.items()})
    assert data.digest(first) != data.digest(second)
    assert data.combine({"a", "b"}) == data.combine({"b", "a"}) != data.combine({"a"})
