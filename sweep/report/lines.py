"""Lines on a terminal: prose wrapped under itself, and what is to be copied in one piece."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Wrap between words; a word longer than the line is left whole."""
    lines = textwrap.wrap(
        text, max(20, console.width - indent - 2), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines):
        gap = " " * (indent + (2 if number else 0))
        console.print(Text(gap + line, style=style), soft_wrap=True)


def say_whole(console: Console, label: str, text: str, style: str = "") -> None:
    """A path, a command or an address after its label, never broken."""
    console.print(Text(f"{label} {text}".rstrip(), style=style), soft_wrap=True)
