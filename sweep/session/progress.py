"""Shows on the terminal which cases wait, run (at which step) and are done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sweep import clock
from sweep.report.looks import STYLES

SHOWN = 20  # lines at once; a nightly is longer than a screen


@dataclass
class State:
    """How far a case is."""

    phase: str = "waiting"
    since: float = 0.0

    @property
    def running(self) -> bool:
        """Whether it has started and not ended."""
        return self.phase.startswith("running")


class Progress:
    """A live table on a terminal; elsewhere (a CI log) one line per change."""

    def __init__(self, case_ids: list[str], enabled: bool, console: Console | None = None) -> None:
        self._console = console or Console()
        self._states = {case_id: State() for case_id in case_ids}
        self._enabled = enabled
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._enabled and self._console.is_terminal:
            self._live = Live(self._render(), console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.update(self._render())
            self._live.stop()

    def started(self, case_id: str) -> None:
        """The case's job starts."""
        self._change(case_id, "running")

    def step(self, case_id: str, step: int, steps: int) -> None:
        """The running case reports its step; 0 before the first."""
        if step and self._states[case_id].running:
            self._change(case_id, f"running, step {step} of {steps}")

    def ended(self, case_id: str, verdict: str) -> None:
        """The case is done."""
        self._change(case_id, verdict)

    def refresh(self) -> None:
        """Draw again."""
        if self._live is not None:
            self._live.update(self._render())

    def _change(self, case_id: str, phase: str) -> None:
        state = self._states[case_id]
        if state.phase == phase:
            return
        if not state.running:
            state.since = clock.now()
        state.phase = phase
        if self._enabled and self._live is None:
            at = time.strftime("%H:%M:%S")
            self._console.print(f"{at} {case_id} {phase}", markup=False, highlight=False)

    def _render(self) -> RenderableType:
        states = self._states.items()
        running = [(case_id, state) for case_id, state in states if state.running]
        waiting = [case_id for case_id, state in states if state.phase == "waiting"]
        done = [item for item in states if not item[1].running and item[1].phase != "waiting"]
        lines = [_line(case_id, state.phase) for case_id, state in done[-SHOWN:]]
        lines += [_line(case_id, f"{state.phase} ({clock.now() - state.since:.0f} s)")
                  for case_id, state in running]  # fmt: skip
        lines += [_line(case_id, "waiting") for case_id in waiting[:SHOWN]]
        lines.append(Text(f"{len(done)} done, {len(running)} running, {len(waiting)} waiting"))
        return Group(*lines)


def _line(case_id: str, phase: str) -> Text:
    word = phase.partition(" ")[0].rstrip(",")
    style = {"running": "cyan", "waiting": "dim"}.get(word, STYLES.get(word, "red"))
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(f"{case_id:<40} ").append(phase, style=style)
