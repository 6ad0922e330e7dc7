"""The documents that a source of chats gives, and what a trainer's batches have otherwise.

Each line of the source is rendered with the checkpoint's tokenizer and chat template, and cut to
the longest document that the trainer takes. Nothing is packed here: a batch is held against the
documents as a set, and row by row where a row's documents are to follow each other in the source.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from oracle.batches import IGNORED, Document, Steps
from oracle.errors import OracleError
from oracle.settings import Settings

EXAMPLES = 5


def compare(checkpoint: Path, steps: Steps, settings: Settings) -> dict[str, Any]:
    """How many documents are not as the source has them, and what the first ones have otherwise."""
    assert settings.source is not None
    whole = documents(checkpoint, Path(settings.source))
    known = [cut(document, settings.max_length) for document in whole]
    problems = [*unlike(steps, known), *repeated(steps, known)]
    if settings.order == "rows":
        may_be_left_out = [
            bool(w.trained) > bool(c.trained) for w, c in zip(whole, known, strict=True)
        ]
        kept = [c for c, is_empty in zip(known, may_be_left_out, strict=True) if not is_empty]
        problems += out_of_order(steps, kept)
    return {
        "source_documents": len(known),
        "documents": sum(map(len, steps.values())),
        "wrong": len(problems),
        "problems": problems[:EXAMPLES],
    }


def documents(checkpoint: Path, source: Path) -> list[Document]:
    """Every document of a source, whole; raises `OracleError`."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OracleError(f"{checkpoint} has no tokenizer: {reason}") from None
    return [rendered(chat, tokenizer) for chat in chats(source)]


def chats(source: Path) -> Iterator[Any]:
    """The messages of each line; raises `OracleError`."""
    try:
        lines = source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OracleError(f"source={source} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError):
            raise OracleError(f'{source}:{number} is not a JSON object with "messages"') from None


def rendered(chat: Any, tokenizer: Any) -> Document:
    """The tokens of a chat; those of the assistant's turns are trained on; raises `OracleError`."""
    try:
        text: Any = tokenizer.apply_chat_template(
            chat, return_dict=True, return_assistant_tokens_mask=True
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise OracleError(f"the chat template refuses a document: {error}") from None
    tokens, mask = text["input_ids"], text["assistant_masks"]
    targets = [t if m else IGNORED for t, m in zip(tokens[1:], mask[1:], strict=True)]
    return Document(tuple(tokens), (*targets, IGNORED))


def cut(document: Document, length: int | None) -> Document:
    """Its first tokens, of which the last has nothing to predict."""
    if length is None or len(document.tokens) <= length:
        return document
    return Document(document.tokens[:length], (*document.targets[: length - 1], IGNORED))


def unlike(steps: Steps, known: Sequence[Document]) -> Iterator[str]:
    """Documents of the batches that the source does not have, and how they differ."""
    digests = {document.digest for document in known}
    for step, docs in steps.items():
        for document in docs:
            if document.digest not in digests:
                yield f"step {step}, row {document.row}: {difference(document, known)}"


def difference(document: Document, known: Sequence[Document]) -> str:
    """What the source's most similar document has otherwise."""
    tokens = document.tokens
    for other in known:
        if other.tokens == tokens:
            place = first_difference(document.targets, other.targets)
            ours, theirs = document.targets[place], other.targets[place]
            return (
                f"a document has target {ours} at token {place}, the source {theirs} (of its"
                f" {len(tokens)} tokens {document.trained} are trained on, {other.trained} in the"
                " source)"
            )
    nearest = max(known, key=lambda other: first_difference(tokens, other.tokens))
    place = first_difference(tokens, nearest.tokens)
    if place == len(tokens):
        return f"a document ends after {place} tokens, the source's has {len(nearest.tokens)}"
    return f"a document is not in the source: the nearest has other tokens from token {place} on"


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """The first place at which two sequences differ, or the end of the shorter one."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    shorter = min(len(ours), len(theirs))
    return next((place for place, (one, other) in pairs if one != other), shorter)


def repeated(steps: Steps, known: Sequence[Document]) -> Iterator[str]:
    """Documents that a step has more often than the source: ranks that train on the same rows."""
    has = Counter(document.digest for document in known)
    for step, docs in steps.items():
        here = Counter(document.digest for document in docs)
        for document in docs:
            has_here = here[document.digest]
            if 0 < has[document.digest] < has_here:
                yield (
                    f"step {step}, row {document.row}: a document comes {has_here} times, in the"
                    f" source {has[document.digest]} times"
                )


def out_of_order(steps: Steps, known: Sequence[Document]) -> Iterator[str]:
    """Rows whose documents do not follow each other in the source."""
    places: defaultdict[str, set[int]] = defaultdict(set)
    for place, document in enumerate(known):
        places[document.digest].add(place)
    for step, docs in steps.items():
        for first, second in pairwise(docs):
            before, after = places[first.digest], places[second.digest]
            follows = not before or not after or {place + 1 for place in before} & after
            if first.row == second.row and not follows:
                yield (
                    f"step {step}, row {first.row}: document {min(after)} of the source comes"
                    f" after document {min(before)}"
                )
