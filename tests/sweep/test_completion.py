"""Completion, typed into a real bash on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.cli import completion
from sweep.errors import RequestError

TAB = "\t"
READY = '\x15echo rea""dy\n', r"\nready\r\n"  # Ctrl-U: what is typed so far is thrown away
Type = Callable[[str, str], str]


@pytest.fixture(scope="module")
def type_into_bash() -> Iterator[Type]:
    """Types keys at a prompt, and returns what the terminal shows once a pattern is in it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null", "COLUMNS": "200"}
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])

    def press(keys: str, pattern: str) -> str:
        os.write(terminal, keys.encode())
        shown, deadline = "", time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, f"{pattern} never came: {shown!r}"
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096).decode()
        return shown

    press('eval "$(python -m sweep -sc install=bash)"\n', "install=bash")
    press(*READY)
    yield press
    os.close(terminal)
    os.waitpid(pid, 0)


@pytest.mark.slow
def test_tab_completes_groups_choices_lists_and_enumerations(type_into_bash: Type) -> None:
    for typed, completed in (
        ("python -m sweep arch=lla", "arch=llama"),
        ("python -m sweep -m arch=llama,gpt", "arch=llama,gpt_oss"),
        ("python -m sweep device=cu", "device=cuda"),
        ("python3 -m sweep optim.warm", "optim.warmup_steps="),
    ):
        type_into_bash(typed + TAB, re.escape(completed))
        type_into_bash(*READY)


def test_other_commands_of_python_complete_as_before(type_into_bash: Type, tmp_path: Path) -> None:
    (tmp_path / "a_script_of_mine.py").touch()
    type_into_bash(f"python {tmp_path}/a_scr" + TAB, r"a_script_of_mine\.py")
    type_into_bash(*READY)


@pytest.mark.parametrize("words", [["install=zsh"], ["install=bash", "arch=llama"], []])
def test_another_shell_is_told_which_there_is(words: list[str]) -> None:
    with pytest.raises(RequestError, match="completion is for bash"):
        completion.answer(["-sc", *words], lambda: None)
