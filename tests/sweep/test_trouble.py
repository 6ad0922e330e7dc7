"""Whatever ends a command is one line that names the next step, with its exit code."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sweep.cli.arguments import OUTPUTS, Usage, run
from sweep.errors import Interrupted, told
from sweep.files import ConfDirs


def refused(number: int, path: str | None = "/results") -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("number", "code", "step"),
    [
        (errno.EACCES, 2, "name another folder with outputs="),
        (errno.EROFS, 2, "name another folder with outputs="),
        (errno.ENOTDIR, 2, "a part of it is a file"),
        (errno.ENAMETOOLONG, 2, "choose shorter names"),
        (errno.ENOSPC, 3, "free some space"),
        (errno.EMFILE, 3, "ulimit -n"),
        (errno.EAGAIN, 3, "ulimit -u"),
        (errno.EIO, 3, os.strerror(errno.EIO)),
    ],
)
def test_what_the_system_refuses_names_the_place_and_the_next_step(
    number: int, code: int, step: str
) -> None:
    line, exit_code = told(refused(number))
    assert line.startswith(f"/results: {os.strerror(number)}")
    assert step in line
    assert exit_code == code


def test_a_path_too_long_to_read_is_cut() -> None:
    assert len(told(refused(errno.ENAMETOOLONG, "/" + "x" * 5000))[0]) < 400


def test_a_signal_is_no_fault() -> None:
    assert told(Interrupted("SIGHUP")) == told(KeyboardInterrupt()) == ("interrupted", 130)


def test_a_real_refusal_is_told_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()

    def main(values: dict[str, str], _: ConfDirs) -> int:
        (Path(values["outputs"]) / "x").mkdir()
        return 0

    usage = Usage("sweep.judge", "Judge.", "python -m sweep.judge", (OUTPUTS,))
    assert run(usage, main, [f"outputs={tmp_path}/file"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"sweep.judge: {tmp_path}/file/x: Not a directory: ")
    assert said.count("\n") == 1
