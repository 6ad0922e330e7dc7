"""The tokenizer: real, offline, spread over the vocabulary, with the assistant's tokens marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError

import tiny_models
from tiny_models import tokenizer

Chats = list[list[dict[str, str]]]
every_arch = pytest.mark.parametrize("arch", tiny_models.names())
both_scales = pytest.mark.parametrize("scale", tiny_models.model.SCALES)
SHARDS = 8


def words(arch: str, scale: str = "nano") -> Any:
    model = tiny_models.get(arch)
    return tokenizer.build(model.chat, model.config(scale).vocab_size)


@every_arch
@both_scales
def test_ids_are_in_the_vocabulary_and_spread_evenly_over_it(arch: str, scale: str) -> None:
    model = tiny_models.get(arch)
    size = model.config(scale).vocab_size
    ids = tokenizer.place(model.chat, size).values()
    assert len(set(ids)) == len(ids)
    assert max(ids) < size
    shares = Counter(i * SHARDS // size for i in ids)
    assert len(shares) == SHARDS
    assert min(shares.values()) > 0.9 * max(shares.values()) - len(model.chat.specials)


@every_arch
@both_scales
def test_the_suites_text_uses_every_shard_of_the_embedding(
    arch: str, scale: str, suite_chats: Chats
) -> None:
    size = tiny_models.get(arch).config(scale).vocab_size
    documents = words(arch, scale).apply_chat_template(suite_chats[:24], return_dict=True)
    used = Counter(i * SHARDS // size for ids in documents["input_ids"] for i in ids)
    assert len(used) == SHARDS
    assert min(used.values()) > sum(used.values()) / SHARDS / 4


@pytest.fixture(scope="session")
def qwen3() -> Any:
    return words("qwen3")


@given(text=st.text())
def test_any_text_comes_back_as_it_was(text: str, qwen3: Any) -> None:
    ids = qwen3(text, add_special_tokens=False)["input_ids"]
    assert qwen3.decode(ids, clean_up_tokenization_spaces=False) == text


def test_merges_are_learned_so_that_words_of_the_corpus_are_short() -> None:
    ids = words("llama")("The lighthouse keeper counted ships")["input_ids"]
    assert len(ids) < 15
    assert len(tokenizer.trained()[1]) > 1000


@every_arch
def test_the_assistants_tokens_are_marked_and_only_those(arch: str) -> None:
    built = words(arch)
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How many apples are left?"},
        {"role": "assistant", "content": "There are seven of them."},
        {"role": "user", "content": "And how many boxes?"},
        {"role": "assistant", "content": "Three."},
    ]
    out = built.apply_chat_template(chat, return_assistant_tokens_mask=True, return_dict=True)
    pairs = list(zip(out["input_ids"], out["assistant_masks"], strict=True))
    marked = built.decode([i for i, mark in pairs if mark], skip_special_tokens=True)
    rest = built.decode([i for i, mark in pairs if not mark], skip_special_tokens=True)
    assert "There are seven of them." in marked
    assert "Three." in marked
    assert "apples" not in marked
    assert "boxes" not in marked
    assert "Be brief." in rest
    assert "seven" not in rest


@every_arch
def test_a_generation_prompt_ends_with_the_assistants_header(arch: str) -> None:
    chat = tiny_models.get(arch).chat
    text = words(arch).apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith(chat.headers["assistant"])


def test_an_unknown_role_is_refused_with_the_roles_there_are() -> None:
    with pytest.raises(TemplateError, match="unknown role narrator, use one of system, user"):
        words("llama").apply_chat_template([{"role": "narrator", "content": "Once"}])


@every_arch
def test_special_tokens_have_the_published_ids_at_tiny(arch: str) -> None:
    chat = tiny_models.get(arch).chat
    built = words(arch, "tiny")
    for token, number in chat.specials.items():
        assert built(token, add_special_tokens=False)["input_ids"] == [number]


@every_arch
def test_transformers_reads_the_checkpoints_tokenizer_as_the_file_says(
    arch: str, checkpoint: Callable[[str], Path], suite_chats: Chats
) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(checkpoint(arch))
    plain = Tokenizer.from_file(str(checkpoint(arch) / "tokenizer.json"))
    for chat in [*suite_chats[:3], [{"role": "user", "content": tokenizer.corpus()}]]:
        text = loaded.apply_chat_template(chat, tokenize=False)
        ids = loaded.apply_chat_template(chat, return_dict=True)["input_ids"]
        assert plain.encode(text, add_special_tokens=False).ids == ids
        assert plain.decode(ids, skip_special_tokens=False) == text


@every_arch
def test_the_checkpoint_keeps_the_template_and_the_special_tokens(
    arch: str, checkpoint: Callable[[str], Path]
) -> None:
    from transformers import AutoTokenizer

    loaded, chat = AutoTokenizer.from_pretrained(checkpoint(arch)), tiny_models.get(arch).chat
    assert loaded.chat_template == chat.template()
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == (chat.bos, chat.eos, chat.pad)
    ids = chat.special_ids(tiny_models.get(arch).config("nano").vocab_size)
    assert {token: loaded.convert_tokens_to_ids(token) for token in ids} == ids


def test_a_vocabulary_too_small_for_bytes_is_refused() -> None:
    with pytest.raises(tiny_models.TinyModelError, match="200 has no room for 256 bytes"):
        tokenizer.place(tiny_models.get("llama").chat, 200)
