"""Shows on the terminal which cases wait, run (at which step) and are done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sweep import clock
from sweep.report.looks import STYLES

PHASE = 34  # columns for `running, step 3 of 5 (120 s)`
MIN_ID = 20  # columns of an id, on however narrow a terminal
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

    def __init__(
        self,
        case_ids: list[str],
        enabled: bool,
        console: Console | None = None,
        estimates: Mapping[str, float] | None = None,  # seconds by case id, of some machine
    ) -> None:
        self._console = console or Console()
        self._left = TimeLeft(estimates or {})
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
        self._left.most = max(
            self._left.most, sum(state.running for state in self._states.values())
        )

    def step(self, case_id: str, step: int, steps: int) -> None:
        """The running case reports its step; 0 before the first."""
        if step and self._states[case_id].running:
            self._change(case_id, f"running, step {step} of {steps}")

    def ended(self, case_id: str, verdict: str) -> None:
        """The case is done."""
        state = self._states[case_id]
        if state.running:
            self._left.took(case_id, clock.now() - state.since)
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
            left = "" if state.running else self._left.said(self._states)
            self._console.print(f"{at} {case_id} {phase}{left}", markup=False, highlight=False)

    def _render(self) -> RenderableType:
        states = self._states.items()
        running = [(case_id, state) for case_id, state in states if state.running]
        waiting = [case_id for case_id, state in states if state.phase == "waiting"]
        done = [item for item in states if not item[1].running and item[1].phase != "waiting"]
        shown = [(case_id, state.phase) for case_id, state in done[-SHOWN:]]
        shown += [
            (case_id, f"{state.phase} ({clock.now() - state.since:.0f} s)")
            for case_id, state in running
        ]
        shown += [(case_id, "waiting") for case_id in waiting[:SHOWN]]
        room = max(MIN_ID, self._console.width - PHASE)
        width = min(room, max((len(case_id) for case_id, _ in shown), default=0))
        lines = [_line(shortened(case_id, width).ljust(width), phase) for case_id, phase in shown]
        counted = f"{len(done)} done, {len(running)} running, {len(waiting)} waiting"
        lines.append(Text(counted + self._left.said(self._states)))
        return Group(*lines)


class TimeLeft:
    """How long the rest takes: by estimates, as this machine has kept to them so far."""

    def __init__(self, estimates: Mapping[str, float]) -> None:
        self._estimates = estimates
        self._taken = self._expected = 0.0
        self.most = 1  # cases that ran at once

    def took(self, case_id: str, seconds: float) -> None:
        """A case has ended."""
        self._taken += seconds
        self._expected += self._estimates.get(case_id, 0.0)

    def said(self, states: Mapping[str, State]) -> str:
        """`, about 3 min left`; empty where nothing is left or nothing is known."""
        scale = self._taken / self._expected if self._expected else 1.0
        left = 0.0
        for case_id, state in states.items():
            whole = scale * self._estimates.get(case_id, 0.0)
            if state.running:
                left += max(0.0, whole - (clock.now() - state.since))
            elif state.phase == "waiting":
                left += whole
        seconds = left / self.most
        if seconds <= 0:
            return ""
        shown = f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"
        return f", {shown} left"


def shortened(case_id: str, width: int) -> str:
    """Without its middle where it is too long: both ends tell cases apart."""
    if len(case_id) <= width:
        return case_id
    head = (width - 1) // 2
    return f"{case_id[:head]}…{case_id[len(case_id) - (width - 1 - head) :]}"


def _line(case_id: str, phase: str) -> Text:
    word = phase.partition(" ")[0].rstrip(",")
    style = {"running": "cyan", "waiting": "dim"}.get(word, STYLES.get(word, "red"))
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(f"{case_id} ").append(phase, style=style)
