"""Packed rows, kept between launches: one rank renders and packs, all others read its file.

The key is of all that determines the rows: documents, tokenizer and template, length, the code that
packs and the versions that render. A file has a digest of its rows, and one that reads otherwise is
built again. Where nothing can be written, every rank builds its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoTokenizer

from sft import data
from sft.config import Config
from sft.data import Row

VARIABLE = "SFT_CACHE"
LOCK_SECONDS = 300
VERSIONS = ("transformers", "tokenizers", "jinja2")


@dataclass(frozen=True)
class Packed:
    """A configuration's rows, and how many documents are not in them."""

    rows: list[Row]
    left_out: int = 0
    """Documents of which `seq_len` cuts off all that is trained on."""


def packed_rows(config: Config) -> list[Row]:
    """The rows of a configuration's documents, in order; raises `ConfigError`."""
    packed = kept(config)
    if packed.left_out and os.environ.get("RANK", "0") == "0":
        print(
            f"{packed.left_out} documents are left out: data.seq_len={config.data.seq_len} cuts "
            "off all that is trained on in them",
            flush=True,
        )
    return packed.rows


def kept(config: Config) -> Packed:
    """What the cache has of a configuration, or else gets."""
    text = data.read_text(config.data.path)
    try:
        path = cache() / f"rows-{key(config, text)}.safetensors"
        if (packed := _read(path)) is not None:
            return packed
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
            packed = _read(path)  # another rank may have been faster
            if packed is None:
                packed = build(config)
                with contextlib.suppress(OSError, SafetensorError):  # on a full disk
                    _write(packed, path)
    except OSError:
        packed = build(config)
    return packed


def build(config: Config) -> Packed:
    """Render and pack the documents; raises `ConfigError`."""
    tokenizer = AutoTokenizer.from_pretrained(config.model.path, local_files_only=True)
    rendered = data.render(data.read_chats(config.data.path), tokenizer)
    documents = data.without_cut_off(rendered, config.data.seq_len)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    rows = data.pack(documents, config.data.seq_len, pad)
    return Packed(rows, len(rendered) - len(documents))


def cache() -> Path:
    """`$SFT_CACHE`, or `~/.cache/sft`; OSError for a user who has no home."""
    try:
        return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "sft")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


def key(config: Config, text: str) -> str:
    """Digest of what determines the rows of documents `text`."""
    total = hashlib.sha256(text.encode())
    for name in VERSIONS:
        total.update(f"\0{name}{version(name)}".encode())
    total.update(f"\0{config.data.seq_len}".encode())
    for code in (data.__file__, __file__):
        total.update(b"\0" + Path(code).read_bytes())
    for file in sorted(Path(config.model.path).iterdir()):
        if file.is_file() and file.suffix in {".json", ".jinja", ".txt", ".model"}:
            content = file.read_bytes()
            total.update(f"\0{file.name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:32]


def _read(path: Path) -> Packed | None:
    """What a file has; None if it is not there, or damaged."""
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            columns = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (OSError, SafetensorError):
        return None
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if said.get("digest") != data.digest_of_rows(rows):
        return None
    return Packed(rows, int(said["left_out"]))


def _write(packed: Packed, path: Path) -> None:
    rows = packed.rows
    columns = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    said = {"digest": data.digest_of_rows(rows), "left_out": str(packed.left_out)}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(columns, name, said)
        Path(name).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
