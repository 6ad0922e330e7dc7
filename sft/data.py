"""Chat documents, rendered by the tokenizer's template and packed into rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler
from transformers import PreTrainedTokenizerBase

from sft.config import DataConfig
from sft.errors import ConfigError

IGNORED = -100
"""Label of a token that is not under the loss, as in torch's cross entropy."""
Row = dict[str, Tensor]
"""`input_ids`, `labels` (shifted: the next token's), `position_ids` and `padding`, each [seq]."""

Message = dict[str, Any]
Chat = list[Message]
OPTIONAL = ("tool_calls", "function_call", "reasoning_content")
"""Parts of a message that not every template has a place for."""


@dataclass(frozen=True)
class Document:
    tokens: list[int]
    trained: list[int]
    """1 where the token is the assistant's."""

    def labels(self) -> list[int]:
        """The next token's id where that is trained on; the last token has none."""
        following = zip(self.tokens[1:], self.trained[1:], strict=True)
        return [token if trained else IGNORED for token, trained in following] + [IGNORED]


def read_text(path: str | None) -> str:
    """A file of chats, or the one that ships; raises `ConfigError`."""
    source = Path(path) if path else resources.files("sft") / "documents" / "chats.jsonl"
    try:
        return source.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"data.path={path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"data.path={path} is not UTF-8 at byte {error.start}") from None


def read_chats(path: str | None) -> list[Chat]:
    """The `messages` of each line of a JSONL file, or of the documents that ship; `ConfigError`."""
    source = path or "chats.jsonl"
    chats = []
    # not `splitlines`: JSON may have other characters that end a line inside of its strings
    for number, line in enumerate(read_text(path).removesuffix("\n").split("\n"), 1):
        try:
            chat = json.loads(line)
            chats.append(chat["messages"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f'{source}:{number} is not a JSON object with "messages": [{{"role", "content"}}]'
            ) from None
        if chat.get("tools"):
            raise ConfigError(
                f"{source}:{number} has tools, which no template is given; "
                "write them into its system message"
            )
    return chats


def render(chats: list[Chat], tokenizer: PreTrainedTokenizerBase) -> list[Document]:
    """Tokens and the assistant's mask of each chat; raises `ConfigError` for a template without."""
    documents = []
    for number, messages in enumerate(chats, 1):
        try:
            check_is_used(messages, str(tokenizer.chat_template))
            rendered: Any = tokenizer.apply_chat_template(
                [message | {"content": text_of(message)} for message in messages],
                return_dict=True,
                return_assistant_tokens_mask=True,
            )
        except (TemplateError, TypeError, ValueError) as error:
            cause = str(error).partition("\n")[0]
            raise ConfigError(f"the chat template refuses document {number}: {cause}") from None
        if not rendered["input_ids"]:
            raise ConfigError(
                f"the chat template makes no token of document {number}; leave it out"
            )
        documents.append(Document(rendered["input_ids"], rendered["assistant_masks"]))
    if not any(any(document.trained) for document in documents):
        raise ConfigError(
            "no token is the assistant's: the chat template must mark its turns with "
            "{% generation %}, and the data must have some"
        )
    return documents


def text_of(message: Message) -> str:
    """A message's text, of which its content may be a list of parts; raises ValueError."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else part
            raise ValueError(f"a part of type {kind} in its content, where only text is trained on")
    return "".join(part["text"] for part in content)


def check_is_used(messages: Chat, template: str) -> None:
    """Raise ValueError for messages of which the template would leave out a part."""
    if not all(isinstance(message, dict) for message in messages):
        raise ValueError("its messages should be dicts")
    for key in OPTIONAL:
        if any(message.get(key) for message in messages) and key not in template:
            raise ValueError(
                f"it has no place for {key}; use another, or write it into the content"
            )


def without_cut_off(documents: list[Document], seq_len: int) -> list[Document]:
    """The documents but those of which all that is trained on is past `seq_len`; `ConfigError`."""
    kept = [d for d in documents if not any(d.trained[1:]) or any(d.trained[1:seq_len])]
    if not any(any(document.trained[1:]) for document in kept):
        raise ConfigError(
            f"data.seq_len={seq_len} cuts off every token that is trained on; use more"
        )
    return kept


def pack(documents: list[Document], seq_len: int, pad_token: int) -> list[Row]:
    """Rows of `seq_len` tokens, documents in order, never split; a longer one is cut.

    A row's rest is one more document of padding, which is never trained on.
    """
    rows: list[Row] = []
    waiting: list[Document] = []
    for document in documents:
        cut = Document(document.tokens[:seq_len], document.trained[:seq_len])
        if sum(len(d.tokens) for d in waiting) + len(cut.tokens) > seq_len:
            rows.append(_row(waiting, seq_len, pad_token))
            waiting = []
        waiting.append(cut)
    return [*rows, _row(waiting, seq_len, pad_token)]


def _row(documents: list[Document], seq_len: int, pad_token: int) -> Row:
    rest = seq_len - sum(len(document.tokens) for document in documents)
    if rest:
        documents = [*documents, Document([pad_token] * rest, [0] * rest)]
    return {
        "input_ids": torch.tensor([t for d in documents for t in d.tokens]),
        "labels": torch.tensor([label for d in documents for label in d.labels()]),
        "position_ids": torch.cat([torch.arange(len(d.tokens)) for d in documents]),
        "padding": torch.arange(seq_len) >= seq_len - rest,
    }


def unpacked(row: Row) -> Iterator[Row]:
    """The documents of a row [1, seq], each as a row of its own length."""
    starts = (row["position_ids"][0] == 0).nonzero().flatten().tolist()
    for start, end in pairwise([*starts, row["position_ids"].shape[1]]):
        yield {key: value[:, start:end] for key, value in row.items()}


def digest_of_rows(rows: Iterable[Row]) -> str:
    """A short hash of rows, in order."""
    return digest_of(row[key] for row in rows for key in sorted(row))


def digest(rows: Row) -> str:
    """A short hash of a batch's tokens and labels."""
    return digest_of(rows[key] for key in ("input_ids", "labels", "position_ids"))


def digest_of(tensors: Iterable[Tensor]) -> str:
    """A short hash of tensors, in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def combine(digests: set[str]) -> str:
    """One hash for a set of rows, whoever held them."""
    return hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()[:16]


class Loader:
    """This rank's rows of each global batch, for ever; its position is saved and restored.

    Step n of every layout has the same rows: the shuffled order is dealt out in turn, so that the
    ranks' shares of a step together are the next `global_batch` rows of it.
    """

    def __init__(self, rows: list[Row], config: DataConfig, shards: int, shard: int) -> None:
        if len(rows) < config.global_batch:
            raise ConfigError(
                f"the data fill {len(rows)} rows of data.seq_len={config.seq_len}, fewer than "
                f"data.global_batch={config.global_batch}"
            )
        self.shards, self.digest = shards, digest_of_rows(rows)
        self.sampler = StatefulDistributedSampler(
            rows,  # any sequence will do
            num_replicas=shards,
            rank=shard,
            seed=config.seed,
            drop_last=True,
        )
        self.loader: DataLoader[Row] = DataLoader(
            rows,  # type: ignore[arg-type]
            batch_size=config.global_batch // shards,
            sampler=self.sampler,
            drop_last=True,  # of the shuffled rows: others are left over in each epoch
            generator=torch.Generator(),  # its own: `iter` must not draw from the global one
        )
        self.epoch = 0

    def __iter__(self) -> Iterator[Row]:
        while True:
            self.sampler.set_epoch(self.epoch)
            yield from self.loader
            self.epoch += 1

    def state_dict(self) -> dict[str, int]:
        """The position, in rows of all ranks together, so that another layout can go on from it."""
        return {"epoch": self.epoch, "rows": self.sampler.yielded * self.shards}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved position with the next `iter`."""
        self.epoch = state["epoch"]
        self.sampler.load_state_dict({"yielded": state["rows"] // self.shards})
