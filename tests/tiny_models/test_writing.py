"""Bad requests get one line and leave nothing behind."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors import SafetensorError

import tiny_models
from tiny_models import TinyModelError, manifest


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def fails_with(out: Path, match: str, **request: Any) -> None:
    request = {"arch": "qwen3", "scale": "nano", "seed": 0} | request
    with pytest.raises(TinyModelError, match=match) as caught:
        tiny_models.write(out=out, **request)
    assert "\n" not in str(caught.value)


def saving_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Half of a checkpoint is written, then `error`."""
    from transformers import PreTrainedModel

    def save(_self: Any, folder: Path, **_: Any) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save)


def test_an_unknown_arch_is_refused(tmp_path: Path) -> None:
    fails_with(tmp_path / "out", "unknown arch 'lama': did you mean 'llama'", arch="lama")
    assert not list(tmp_path.iterdir())


def test_an_unknown_scale_is_refused(tmp_path: Path) -> None:
    fails_with(tmp_path / "out", "unknown scale 'small': choose one of tiny, nano", scale="small")


@pytest.mark.parametrize("seed", [-1, 2**63, "0", 1.5, True])
def test_a_seed_that_torch_does_not_take_is_refused(tmp_path: Path, seed: Any) -> None:
    fails_with(tmp_path / "out", "is not an integer from 0", seed=seed)


def test_no_folder_is_asked_for() -> None:
    with pytest.raises(TinyModelError, match="name one with --out"):
        tiny_models.write("qwen3")


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    fails_with(tmp_path / "out", "is not a folder: name another")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    fails_with(tmp_path, "holds something else than a tiny model: empty it")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fails_with(tmp_path / "file" / "out", "file is not a folder: name another with --out")


@pytest.fixture
def nobody() -> Iterator[None]:
    """Not root meanwhile, who may write anywhere."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    yield
    os.seteuid(me)


@pytest.mark.parametrize("mode", [0o555, 0o000])
@pytest.mark.usefixtures("nobody")
def test_a_folder_without_permission_is_refused(mode: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own are root's alone
        Path(folder).chmod(mode)
        fails_with(Path(folder) / "out", r"cannot write .*out \(Permission denied\).*--out")
        Path(folder).chmod(0o755)


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    fails_with(tmp_path / ("x" * 300), r"cannot write .* \(File name too long\)")


def test_a_disk_that_refuses_is_reported_as_unwritable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving_raises(monkeypatch, OSError(errno.EROFS, "read-only"))
    fails_with(tmp_path / "out", r"cannot write .*out \(Read-only file system\)")
    assert not list(tmp_path.iterdir())


def test_too_little_space_is_seen_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 1 << 20))
    fails_with(tmp_path / "out", r"no space left in .* \(1 MB needed, 1 free\): free some")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
    ],
)
def test_a_disk_that_fills_up_meanwhile_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    saving_raises(monkeypatch, error)
    fails_with(tmp_path / "out", "no space left in .*: free some or write elsewhere")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interruption_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    saving_raises(monkeypatch, error)
    with pytest.raises(type(error)):
        tiny_models.write("qwen3", out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_earlier_checkpoint_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tiny_models.write("qwen3", out=tmp_path / "out")
    saving_raises(monkeypatch, OSError(errno.ENOSPC, "full"))
    fails_with(out, "no space left", seed=1)
    assert manifest.problem(out) is None
    assert manifest.read(out)["seed"] == 0  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_earlier_checkpoint_is_replaced(tmp_path: Path) -> None:
    for seed in (0, 1):
        out = tiny_models.write("qwen3", seed=seed, out=tmp_path / "out")
        assert manifest.read(out)["seed"] == seed  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.fixture
def second_rank() -> Iterator[None]:
    """This process is the second of two."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("second_rank")
def test_any_rank_of_several_may_write(tmp_path: Path) -> None:
    written = manifest.read(tiny_models.write("qwen3", out=tmp_path / "out"))
    assert "model.safetensors" in written["files"]  # type: ignore[index]


@pytest.mark.usefixtures("second_rank")
def test_a_checkpoint_without_weights_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", lambda *_, **__: None)
    fails_with(tmp_path / "out", "wrote no weights: ask for the checkpoint in one process")
    assert not list(tmp_path.iterdir())


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        out = tiny_models.write("qwen3", out=tmp_path / "out")
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o644}
    assert out.stat().st_mode & 0o777 == 0o755
