"""Lines on a terminal: prose wrapped under itself, and what is to be copied in one piece."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def grid(
    head: Sequence[str], rows: Iterable[Sequence[Text]], right: Collection[str], gap: int = 1
) -> Table:
    """A table without rules; where the terminal is narrow the first column is broken."""
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold underline")
    for name in head:
        table.add_column(name, overflow="fold", no_wrap=name != head[0],
                         justify="right" if name in right else "left")  # fmt: skip
    for row in rows:
        table.add_row(*row)
    return table


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
