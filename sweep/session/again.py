"""The command that runs a case again with what it was compared with, and so to the same verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweep import commands
from sweep.checks import Outcome, peers
from sweep.facts import Facts
from sweep.files import config_dir_of
from sweep.report import Result

COMPARING = "parity"
"""The check that holds cases of one sweep against each other."""
LEFT_OUT = {"fault": "null"}
"""What a word is worth that a case's command leaves out."""
FEW = 2
"""Cases that tell which side of a comparison is the odd one."""


def with_references(results: Sequence[Result]) -> list[Result]:
    """The results; the command of one that differed from others runs those too."""
    facts = {
        result.case.id: result.facts
        for result in results
        if result.facts is not None and not result.interrupted
    }
    known = {result.case.id: result.command for result in results}
    joined = []
    for result in results:
        own, command = facts.get(result.case.id), result.command
        if own is not None and _differed(result):
            command = _joined(command, _others(own, facts, known))
        joined.append(replace(result, command=command))
    return joined


def _differed(result: Result) -> bool:
    return any(
        finding.check == COMPARING and finding.outcome is not Outcome.PASS
        for finding in result.judgement.findings
    )


def _others(facts: Facts, sweep: Mapping[str, Facts], known: Mapping[str, str]) -> list[str]:
    """The commands of the cases it was compared with: one an axis, or those that refer to it."""
    axes = peers.axes(facts, sweep)
    first = [next(filter(peers.is_whole, axis), axis[0]) for axis in axes]
    compared = first or peers.referring(facts, sweep)[:FEW]
    return [known[other.case.id] for other in compared if other.case.id in known]


def _joined(command: str, others: Sequence[str]) -> str:
    """One multirun of all of them, the plainest first.

    `references=true` where no product of words has them, and the command alone where it cannot be
    read.
    """
    try:
        config_dir, own = _words(command)
        cases = [*(_words(other)[1] for other in others), own]
    except ValueError:  # cut within quotes: MLflow keeps no more of it
        return command
    keys = dict.fromkeys(key for words in (own, *cases) for key in words)
    values = {key: [words.get(key, LEFT_OUT.get(key)) for words in cases] for key in keys}
    if any(value is None for said in values.values() for value in said):
        joined = own | {"references": "true"}
    else:
        joined = {key: ",".join(dict.fromkeys(map(str, said))) for key, said in values.items()}
    words = [f"{key}={value}" for key, value in joined.items()]
    return commands.spelled("sweep", ["-m", *words], config_dir)


def _words(command: str) -> tuple[str | None, dict[str, str]]:
    config_dir, rest = config_dir_of(shlex.split(command)[len(("python", "-m", "sweep")) :])
    pairs = (word.partition("=") for word in rest if word != "-m")
    return config_dir, {key: value for key, _, value in pairs}
