"""What a search found, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.facts import Facts, Step
from sweep.report.result import short
from sweep.revisions.failure import State
from sweep.revisions.git import commit
from sweep.revisions.search import Found, Search

FIGURES = ("loss", "grad_norm")
INDENT = "  "


def told(found: Found, search: Search) -> Iterator[str]:
    """The first bad revision, its message and author, and the figures before and after."""
    what = "commit" if search.trial.package is None else f"release of {search.trial.package}"
    names = {sha: search.name_of(sha) for sha in (*found.candidates, found.before)}
    if found.first is None:
        yield f"the first bad {what} is one of these, which could not run but for the last:"
    for sha in found.candidates:
        lead = f"first bad {what}: " if found.first else INDENT
        yield f"{lead}{names[sha]}"
        if search.trial.package is None:
            yield from _of_commit(search, sha)
    after = names[max(found.candidates, key=lambda sha: _is_bad(search, names[sha]))]
    yield from _figures(search, names[found.before], after)
    tried = search.outcomes()
    unable = sum(outcome.state is State.CANNOT_RUN for outcome in tried)
    yield f"{len(tried)} tried, {unable} of them could not run; all in {search.trial.path}"


def _is_bad(search: Search, name: str) -> bool:
    outcome = search.trial.outcome(name)
    return outcome is not None and outcome.state is State.BAD


def _of_commit(search: Search, sha: str) -> Iterator[str]:
    known = commit(search.tree, sha)
    yield f"{INDENT}{known.author}, {known.date}"
    yield from (f"{INDENT}{INDENT}{line}".rstrip() for line in known.message.splitlines())


def _figures(search: Search, before: str, after: str) -> Iterator[str]:
    outcome = search.trial.outcome(after)
    both = [search.trial.facts(name) for name in (before, after)]
    for said, name, facts in zip(("before", "after"), (before, after), both, strict=True):
        yield f"{said:<6} {name}: {_curves(facts)}"
    yield from _parted(*both)
    for check, message in (outcome.shown.checks if outcome else {}).items():
        yield f"{INDENT}{check}: {short(message)}"


def _curves(facts: Facts | None) -> str:
    steps = facts.steps if facts else []
    if not steps:
        return "no step"
    ends = [(name, getattr(steps[0], name), getattr(steps[-1], name)) for name in FIGURES]
    shown = [f"{name} {_number(a)} > {_number(b)}" for name, a, b in ends if a is not None]
    return ", ".join(shown)


def _parted(before: Facts | None, after: Facts | None) -> Iterator[str]:
    """The first step at which a figure is another."""
    theirs = {step.step: step for step in (after.steps if after else [])}
    pairs = [
        (step, theirs[step.step])
        for step in (before.steps if before else [])
        if step.step in theirs
    ]
    for one, other in pairs:
        if moved := list(_moved(one, other)):
            yield f"{INDENT}step {one.step}: {', '.join(moved)}"
            return


def _moved(one: Step, other: Step) -> Iterator[str]:
    for name in FIGURES:
        a, b = getattr(one, name), getattr(other, name)
        if a != b:
            yield f"{name} {_number(a)} > {_number(b)}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.8g}"
