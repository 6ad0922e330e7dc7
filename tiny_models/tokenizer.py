"""Byte-level BPE trained on the text that ships with this package, placed in a vocabulary."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from .chat import Chat
from .errors import TinyModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

TRAINED_TOKENS = 1792
BYTES = 256


def corpus() -> str:
    """The text the tokenizer is trained on, written for this package."""
    return resources.files(__package__).joinpath("corpus.txt").read_text(encoding="utf-8")


@cache
def trained() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Tokens in the order they were learned (bytes first), and the merges; once a process."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TRAINED_TOKENS,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus().splitlines(keepends=True), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = tuple(sorted(model["vocab"], key=model["vocab"].__getitem__))
    return tokens, tuple((left, right) for left, right in model["merges"])


def place(chat: Chat, vocab_size: int) -> dict[str, int]:
    """Token -> id, spread evenly over the ids that are not special.

    Frequent and rare tokens alternate over the range, so each shard of an embedding is used alike.
    """
    special = chat.special_ids(vocab_size)
    taken = set(special.values())
    free = [i for i in range(vocab_size) if i not in taken]
    if len(free) < BYTES:
        raise TinyModelError(f"a vocabulary of {vocab_size} has no room for {BYTES} bytes")
    tokens = trained()[0][: len(free)]
    step = _coprime_near(len(tokens), (math.sqrt(5) - 1) / 2)
    placed = {
        token: free[(at * step % len(tokens)) * len(free) // len(tokens)]
        for at, token in enumerate(tokens)
    }
    return placed | special


def build(chat: Chat, vocab_size: int) -> PreTrainedTokenizerFast:
    """The tokenizer of an architecture, with its chat template."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=_backend(chat, vocab_size),
        bos_token=chat.bos,
        eos_token=chat.eos,
        pad_token=chat.pad,
        chat_template=chat.template(),
        clean_up_tokenization_spaces=False,
    )


def _backend(chat: Chat, vocab_size: int) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = place(chat, vocab_size)
    merges = [(a, b) for a, b in trained()[1] if a + b in vocab]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    by_id = sorted(chat.specials, key=vocab.__getitem__)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in by_id])
    return tokenizer


def _coprime_near(count: int, share: float) -> int:
    step = max(1, round(count * share))
    while math.gcd(step, count) != 1:
        step += 1
    return step
