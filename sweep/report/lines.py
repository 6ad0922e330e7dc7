"""Output on a terminal: wrapped prose, unbroken paths and commands, and plain tables."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def grid(
    head: Sequence[str], rows: Iterable[Sequence[Text]], right: Collection[str], gap: int = 1
) -> Table:
    """A table without lines; on a narrow terminal the first column wraps."""
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold underline")
    for name in head:
        table.add_column(
            name,
            overflow="fold",
            no_wrap=name != head[0],
            justify="right" if name in right else "left",
        )
    for row in rows:
        table.add_row(*row)
    return table


def say(console: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print text wrapped between words; a word longer than the line stays whole."""
    lines = textwrap.wrap(
        text, max(20, console.width - indent - 2), break_long_words=False, break_on_hyphens=False
    )
    for number, line in enumerate(lines):
        gap = " " * (indent + (2 if number else 0))
        console.print(Text(gap + line, style=style), soft_wrap=True)


def say_whole(console: Console, label: str, text: str, style: str = "") -> None:
    """Print a path, command or address after its label, never wrapped."""
    console.print(Text(f"{label} {text}".rstrip(), style=style), soft_wrap=True)
