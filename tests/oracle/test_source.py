"""The data: documents rendered anew from the source, and what a batch may have otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_models
from oracle import source
from oracle.batches import IGNORED, Document, Steps
from oracle.errors import OracleError
from oracle.settings import Settings

CHATS = Path("sft/documents/chats.jsonl")


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return tiny_models.ensure("llama", "nano", 0)


def known_of(checkpoint: Path) -> list[Document]:
    return [source.cut(doc, 512) for doc in source.documents(checkpoint, CHATS)]


@pytest.fixture(scope="module")
def known(checkpoint: Path) -> list[Document]:
    return [replace(doc, row="0.0") for doc in known_of(checkpoint)]


def problems(checkpoint: Path, steps: Steps, **keys: object) -> list[str]:
    settings = Settings(source=str(CHATS), max_length=512, **keys)  # type: ignore[arg-type]
    compared = source.compare(checkpoint, steps, settings)
    assert compared["wrong"] >= len(compared["problems"])
    return list(compared["problems"])


def test_the_source_itself_has_no_problem(checkpoint: Path, known: list[Document]) -> None:
    assert problems(checkpoint, {1: known[:3], 2: known[3:6]}, order="rows") == []


def test_only_the_assistants_tokens_are_trained(known: list[Document]) -> None:
    assert any(document.trained for document in known)
    for document in known:
        assert document.trained < len(document.tokens) / 1.05  # a prompt is not trained on
        pairs = zip(document.targets, document.tokens[1:], strict=False)
        assert all(target in (IGNORED, token) for target, token in pairs)
        assert document.targets[-1] == IGNORED


def test_other_targets_are_named(checkpoint: Path, known: list[Document]) -> None:
    document = known[0]
    prompt = replace(document, targets=(*document.tokens[1:], IGNORED))
    (problem,) = problems(checkpoint, {1: [prompt]})
    assert problem.startswith(f"step 1, row 0.0: a document has target {document.tokens[1]} at")
    assert f"{document.trained} in the source" in problem


def test_a_document_that_was_cut_is_named(checkpoint: Path, known: list[Document]) -> None:
    tokens, targets = known[1].tokens, known[1].targets
    cut = Document(tokens[:-2], (*targets[:-3], IGNORED), "0.0")
    (problem,) = problems(checkpoint, {1: [cut]})
    assert f"ends after {len(tokens) - 2} tokens, the source's has {len(tokens)}" in problem


def test_other_tokens_are_named(checkpoint: Path, known: list[Document]) -> None:
    tokens = list(known[2].tokens)
    tokens[9] += 1
    (problem,) = problems(checkpoint, {1: [replace(known[2], tokens=tuple(tokens))]})
    assert "the nearest has other tokens from token 9 on" in problem


def test_a_document_twice_in_a_step_is_named(checkpoint: Path, known: list[Document]) -> None:
    found = problems(checkpoint, {1: [known[0], known[1]], 2: [known[0], known[0]]})
    assert found == ["step 2, row 0.0: a document comes 2 times, in the source 1 times"] * 2


def test_documents_out_of_order_are_named_where_a_row_has_an_order(
    checkpoint: Path, known: list[Document]
) -> None:
    steps = {1: [known[0], known[2]]}
    (problem,) = problems(checkpoint, steps, order="rows")
    assert problem == "step 1, row 0.0: document 2 of the source comes after document 0"
    assert problems(checkpoint, steps) == []
    apart = {1: [known[0], replace(known[2], row="0.1")]}
    assert problems(checkpoint, apart, order="rows") == []


def test_a_document_of_which_nothing_trained_is_left_may_be_left_out(
    checkpoint: Path, known: list[Document]
) -> None:
    length = 40  # some prompts are longer
    cut = [replace(source.cut(document, length), row="0.0") for document in known]
    (place, *_) = (n for n, document in enumerate(cut) if n and not document.trained)
    settings = Settings(source=str(CHATS), max_length=length, order="rows")
    row = {1: [cut[place - 1], cut[place + 1]]}
    assert source.compare(checkpoint, row, settings)["wrong"] == 0


def test_a_source_that_cannot_be_read_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    with pytest.raises(OracleError, match="cannot be read"):
        source.documents(checkpoint, path)
    path.write_text('{"text": "no chat"}\n', encoding="utf-8")
    with pytest.raises(OracleError, match=r'chats\.jsonl:1 is not a JSON object with "messages"'):
        source.documents(checkpoint, path)
    path.write_text(json.dumps({"messages": [{"role": 3}]}) + "\n", encoding="utf-8")
    with pytest.raises(OracleError, match="the chat template refuses a document"):
        source.documents(checkpoint, path)
    with pytest.raises(OracleError, match="has no tokenizer"):
        source.documents(tmp_path, CHATS)
