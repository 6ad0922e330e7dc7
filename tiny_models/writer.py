"""Writes a checkpoint, completely or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import manifest, weights
from .errors import TinyModelError
from .model import TinyModel, check_scale
from .registry import get

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Small shards bound what safetensors copies while writing.
SHARD = "128MB"
SPARE_BYTES = 16 << 20


def write(
    arch: str,
    scale: str = "nano",
    seed: int = 0,
    out: str | os.PathLike[str] = "",
    *,
    published_tokenizer: bool = False,
) -> Path:
    """Write the checkpoint of `arch` into the folder `out` and return it.

    `out` must be empty, absent, or an earlier checkpoint of this package, which is replaced.
    TinyModelError, with nothing left behind, if it cannot be written.
    """
    model = get(arch)
    check_scale(scale)
    check_seed(seed)
    folder = _usable(out)
    with _staged(folder) as stage:
        _fill(stage, model, scale, seed, published_tokenizer)
    return folder


def check_seed(seed: object) -> None:
    """Raise TinyModelError unless `seed` is an integer that torch accepts."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise TinyModelError(f"seed {seed!r} is not an integer from 0 to 2**63 - 1")


def _fill(stage: Path, model: TinyModel, scale: str, seed: int, published_tokenizer: bool) -> None:
    from transformers import AutoTokenizer

    from . import tokenizer

    config = model.config(scale)
    if published_tokenizer:
        from .hub import published_tokenizer as load

        words = load(model, config.vocab_size)
    else:
        words = tokenizer.build(model.chat, config.vocab_size)
    built = weights.build(config, seed)
    _check_space(stage, built)
    built.should_save_on_this_rank = lambda _: True  # transformers leaves it to the first of them
    with _quiet():
        built.save_pretrained(stage, max_shard_size=SHARD)
        words.save_pretrained(stage)
        # For some types AutoTokenizer takes a class of its own choice, with its own way to split
        # text, whatever the file names: store what it makes of the file, so that both agree.
        AutoTokenizer.from_pretrained(stage).save_pretrained(stage)
    if not any(stage.glob("*.safetensors")):
        raise TinyModelError("transformers wrote no weights: ask for the checkpoint in one process")
    about: dict[str, Any] = {
        "arch": model.name,
        "scale": scale,
        "seed": seed,
        "parameters": built.num_parameters(),
        "tokenizer": model.source.readable if published_tokenizer else "built in",
    }
    manifest.write(stage, about)
    _open_to_readers(stage)


def _open_to_readers(stage: Path) -> None:
    # safetensors and mkdtemp make files that only their owner reads; a cache may be shared.
    mask = os.umask(0)
    os.umask(mask)
    stage.chmod(0o777 & ~mask)
    for path in stage.iterdir():
        path.chmod(0o666 & ~mask)


def _usable(out: str | os.PathLike[str]) -> Path:
    if not os.fspath(out):
        raise TinyModelError("no folder to write to: name one with --out")
    folder = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow the link to replace
    try:
        objection = _objection(folder)
    except OSError as error:  # no permission, or the name is too long
        raise TinyModelError(_explain(error, folder)) from error
    if objection:
        raise TinyModelError(objection)
    return folder


def _objection(folder: Path) -> str | None:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        return f"{nearest} is not a folder: name another with --out"
    if nearest == folder and any(folder.iterdir()) and manifest.read(folder) is None:
        return (
            f"{folder} holds something else than a tiny model: empty it or name another with --out"
        )
    return None


def _check_space(stage: Path, built: PreTrainedModel) -> None:
    needed = sum(t.numel() * t.element_size() for _, t in weights.stored_tensors(built))
    free = shutil.disk_usage(stage).free
    if free < needed + SPARE_BYTES:
        raise TinyModelError(
            _no_space(stage.parent, f"{needed >> 20} MB needed, {free >> 20} free")
        )


def _no_space(folder: Path, detail: str) -> str:
    return f"no space left in {folder} ({detail}): free some or write elsewhere"


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A temporary folder that replaces `folder` at the end; it is removed after an error."""
    from safetensors import SafetensorError

    stage = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        yield stage
        _replace(stage, folder)
    except (OSError, SafetensorError) as error:
        raise TinyModelError(_explain(error, folder)) from error
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)


def _replace(stage: Path, folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
        folder.replace(old)
        stage.replace(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        stage.replace(folder)


def _explain(error: Exception, folder: Path) -> str:
    number = getattr(error, "errno", None)
    text = str(error).splitlines()[0]
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text or "quota" in text:
        return _no_space(folder.parent, "while writing")
    reason = os.strerror(number) if number else text
    return f"cannot write {folder} ({reason}): name a folder you may write to with --out"


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bars of transformers in the block."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
