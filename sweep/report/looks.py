"""A verdict's symbol and colours. Both always go with the word, so neither is needed to read it."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.judge import Judgement, Verdict


@dataclass(frozen=True)
class Look:
    """A verdict's symbol (one column wide), what it means, and its colours."""

    symbol: str
    meaning: str
    style: str  # rich
    light: str  # CSS: background on a light page
    dark: str


# The worst first. Backgrounds differ in lightness and as blue against orange, which colour-blind
# readers can distinguish.
LOOKS: dict[Verdict, Look] = {
    Verdict.CRASHED: Look("!", "a process did not exit 0", "bold red", "#ea9a6c", "#9c3d0c"),
    Verdict.TIMED_OUT: Look("◷", "ran out of time", "bold red", "#f3c29f", "#7a3a16"),
    Verdict.FAILED: Look("✗", "a check failed", "bold red", "#f7b08a", "#8a3208"),
    Verdict.INCONCLUSIVE: Look("?", "a check lacks what it needs", "magenta", "#ecd0e4", "#5c2a4e"),
    Verdict.FLAKY: Look(
        "≠", "failed, and passed when it ran again", "bold magenta", "#f6c9d6", "#6a2440"
    ),
    Verdict.FIXED: Look("↑", "known to fail, and passed", "bold magenta", "#dcc3ee", "#4b2a6b"),
    Verdict.KNOWN: Look("~", "fails as it is known to", "yellow", "#fbf0c0", "#544708"),
    Verdict.UNAVAILABLE: Look("○", "cannot run here", "dim", "#e8e8e8", "#333333"),
    Verdict.PASSED: Look("✓", "every check passed", "green", "#d3e8f8", "#123a5a"),
}

STYLES: dict[str, str] = {verdict.value: look.style for verdict, look in LOOKS.items()}


def worded(judgement: Judgement) -> str:
    """`✗ failed`, `✓ passed, not compared`."""
    return f"{LOOKS[judgement.verdict].symbol} {judgement.words}"
