"""Output goes on where its reader, its terminal or its encoding does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from sweep.cli.terminal import steady
steady()
for number in range(20_000):
    print(number, "\\u2717 \\u00e4")
print("ended", file=sys.stderr)
sys.exit(1)
"""


def told(redirected: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the program says through a shell's redirection."""
    script = f'"$0" -c "$1" {redirected}; echo "code ${{PIPESTATUS[0]}}" >&2'
    return subprocess.run(
        ["bash", "-c", script, sys.executable, PROGRAM], capture_output=True, text=True,
        timeout=60, env={"PYTHONPATH": ":".join(filter(None, sys.path)), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("redirected", ["| head -1", ">&-", "> /dev/full", "<&- >&-"])
def test_nobody_who_reads_ends_nothing(redirected: str) -> None:
    done = told(redirected)
    assert done.stderr == "ended\ncode 1\n"


def test_a_terminal_without_unicode_gets_what_it_can_show() -> None:
    done = told("| tail -1", PYTHONIOENCODING="ascii")
    assert done.stderr == "ended\ncode 1\n"
    assert done.stdout == "19999 ? ?\n"


def test_errors_have_nowhere_to_go_and_the_code_stays() -> None:
    done = told("2>&- | tail -1")
    assert done.stderr == "code 1\n"
