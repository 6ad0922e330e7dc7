"""Every rank exits 0 within the time limit."""

from __future__ import annotations

import signal

from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts


def check(facts: Facts, _context: Context) -> Finding:
    """Fail with the first launch that did not end well, or with what kept the case from running."""
    for launch in facts.launches:
        if not launch.ended_well:
            return Finding(
                check="exit",
                outcome=Outcome.FAIL,
                message=_message(launch, facts.error),
                folder=launch.directory,
            )
    if facts.error is not None or not facts.launches:
        message = facts.error or "the trainer was never started"
        return Finding(check="exit", outcome=Outcome.FAIL, message=message)
    return Finding(check="exit", outcome=Outcome.PASS)


def timed_out(facts: Facts) -> bool:
    """Whether a launch was ended at its limit."""
    return any(launch.timed_out for launch in facts.launches)


def _message(launch: LaunchFacts, error: str | None) -> str:
    steps = [step.step for step in launch.metrics.steps]
    after = f"after step {max(steps)}" if steps else "before its first step"
    if launch.timed_out:
        said = f"; {error}" if error else ""
        limit = f"at the limit of {launch.limit_seconds:g} s"
        return f"{launch.name}: still running {limit}, {after}{said}"
    if launch.exit_code is None:
        return f"{launch.name}: {error or 'never seen to end'}, {after}"
    message = f"{launch.name}: {_ended(launch.exit_code)} {after}"
    if launch.failed_rank is not None:
        message += f"; rank {launch.failed_rank} failed first: {launch.failure}"
    return message


def _ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
