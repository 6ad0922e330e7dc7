"""Packed rows, kept between launches: one rank renders and packs, all others read its file.

The key is of all that determines the rows: documents, tokenizer and template, length, the code that
packs and the versions that render. Where nothing can be written, every rank builds its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from sft import data
from sft.config import Config
from sft.data import Row

VARIABLE = "SFT_CACHE"
LOCK_SECONDS = 300
VERSIONS = ("transformers", "tokenizers", "jinja2")


def packed_rows(config: Config) -> list[Row]:
    """The rows of a configuration's documents, in order; raises `ConfigError`."""
    text = data.read_text(config.data.path)
    try:
        path = cache() / f"rows-{key(config, text)}.safetensors"
        if (rows := _read(path)) is not None:
            return rows
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
            rows = _read(path)  # another rank may have been faster
            if rows is None:
                rows = build(config)
                with contextlib.suppress(OSError, SafetensorError):  # on a full disk
                    _write(rows, path)
    except OSError:
        rows = build(config)
    return rows


def build(config: Config) -> list[Row]:
    """Render and pack the documents; raises `ConfigError`."""
    tokenizer = AutoTokenizer.from_pretrained(config.model.path, local_files_only=True)
    documents = data.render(data.read_chats(config.data.path), tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    return data.pack(documents, config.data.seq_len, pad)


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
    total.update(f"\0{config.data.seq_len}\0".encode() + Path(data.__file__).read_bytes())
    for file in sorted(Path(config.model.path).iterdir()):
        if file.is_file() and file.suffix in {".json", ".jinja", ".txt", ".model"}:
            content = file.read_bytes()
            total.update(f"\0{file.name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:32]


def _read(path: Path) -> list[Row] | None:
    """The rows in a file; None if it is not there, or damaged."""
    try:
        columns = load_file(path)
    except (OSError, SafetensorError):
        return None
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _write(rows: list[Row], path: Path) -> None:
    columns = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(columns, name)
        Path(name).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
