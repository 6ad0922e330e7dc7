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

from sweep.cli.app import main
from tests.sweep.commands import console_script
from tests.sweep.test_complaints import complaint

TAB = "\t"
READY = '\x15echo rea""dy\n', r"\nready\r\n"  # Ctrl-U: what is typed so far is thrown away
Type = Callable[[str, str], str]


@pytest.fixture(scope="module")
def type_into_bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Type]:
    """Types keys at a prompt, and returns what the terminal shows once a pattern is in it."""
    programs = console_script(tmp_path_factory.mktemp("bin")).parent
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null", "COLUMNS": "200"}
        os.environ["PATH"] = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])

    def press(keys: str, pattern: str) -> str:
        os.write(terminal, keys.encode())
        shown, deadline = "", time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, f"{pattern} never came: {shown!r}"
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 4096).decode()
        return shown

    press('eval "$(trainer-sweep -sc install=bash)"\n', "install=bash")
    press(*READY)
    yield press
    os.close(terminal)
    os.waitpid(pid, 0)


@pytest.mark.slow
def test_tab_completes_groups_choices_lists_and_enumerations(type_into_bash: Type) -> None:
    for typed, completed in (
        ("trainer-sweep arch=lla", "arch=llama"),
        ("trainer-sweep -m arch=llama,gpt", "arch=llama,gpt_oss"),
        ("trainer-sweep device=cu", "device=cuda"),
        ("trainer-sweep optim.warm", "optim.warmup_steps="),
    ):
        type_into_bash(typed + TAB, re.escape(completed))
        type_into_bash(*READY)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_that_hydra_knows_has_a_script_for_the_program(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/sweep/__main__.py", "-sc", f"install={shell}"])
    assert main() == 0
    assert re.search(r"complete.* trainer-sweep", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("word", "line"),
    [("install=tcsh", "No completion plugin for 'tcsh' found, available : bash fish zsh"),
     ("arch=llama", "Expecting one subcommand from ['install', 'uninstall', 'query'] to be set")],
)  # fmt: skip
def test_another_shell_is_told_which_there_are(
    word: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint(monkeypatch, capsys, "-sc", word) == f"sweep: {line}"
