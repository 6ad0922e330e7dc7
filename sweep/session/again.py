"""The command that runs a case again with what it was compared with, and so to the same verdict."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweep import commands
from sweep.checks import Outcome, peers
from sweep.facts import Facts
from sweep.files import config_dir_of
from sweep.plan import spelled
from sweep.report import Result

COMPARING = "parity"
"""The check that holds cases of one sweep against each other."""
BASELINES = ("drift", "cost")
"""Those that hold a case against earlier runs of its own."""
OF_THAT_SWEEP = (
    "cases",
    "shard",
    "resume_sweep",
    "rerun",
    "host_gone",
    "references",
    "plan",
    "detach",
)
"""What was said of that sweep alone; its suite is where earlier runs are looked for."""
LEFT_OUT = {"fault": "null"}
"""What a word is worth that a case's command leaves out."""
FEW = 2
"""Cases that tell which side of a comparison is the odd one."""


def with_references(results: Sequence[Result], argv: Sequence[str]) -> list[Result]:
    """The results; the command of one that differed from others runs those too.

    `argv` is the command line of their sweep.
    """
    facts = {
        result.case.id: result.facts
        for result in results
        if result.facts is not None and not result.interrupted
    }
    known = {result.case.id: result.command for result in results}
    joined = []
    for result in results:
        own, command = facts.get(result.case.id), result.command
        if own is not None and _failed(result, *BASELINES) and _is_multirun(argv):
            command = _as_asked(argv, [*_others(own, facts), own.case.id], command)
        else:
            if own is not None and _failed(result, COMPARING):
                others = [known[name] for name in _others(own, facts) if name in known]
                command = _joined(command, others)
            command = _launched(command, argv)
        joined.append(replace(result, command=command))
    return joined


def _failed(result: Result, *checks: str) -> bool:
    return any(
        finding.check in checks and finding.outcome is not Outcome.PASS
        for finding in result.judgement.findings
    )


def _others(facts: Facts, sweep: Mapping[str, Facts]) -> list[str]:
    """The ids of the cases it was compared with: one an axis, or those that refer to it.

    Of a planted fault also the same case without it, its baseline.
    """
    axes = peers.axes(facts, sweep)
    first = [next(filter(peers.is_whole, axis), axis[0]) for axis in axes]
    compared = [other.case.id for other in first or peers.referring(facts, sweep)[:FEW]]
    clean = [facts.case.clean_id] if facts.case.fault and facts.case.clean_id in sweep else []
    return list(dict.fromkeys([*clean, *compared]))


def _is_multirun(argv: Sequence[str]) -> bool:
    return bool({"-m", "--multirun"} & set(argv))


def _as_asked(argv: Sequence[str], cases: Sequence[str], command: str) -> str:
    """The sweep's own command line, for these cases alone: ids and suite find earlier runs.

    `command` gives the folder of configuration, which the line may name relative to elsewhere.
    """
    try:
        config_dir, _ = _words(command)
    except ValueError:
        return command
    _, rest = config_dir_of(list(argv))
    kept = [word for word in rest if word.partition("=")[0].lstrip("+") not in OF_THAT_SWEEP]
    named = f"cases=[{','.join(map(spelled, cases))}]"
    return commands.spelled("sweep", [*kept, named], config_dir)


def _launched(command: str, argv: Sequence[str]) -> str:
    """The command, by the launcher that the sweep had: Slurm has nodes that are not here."""
    words = commands.of_launcher(argv)
    if not any(word.startswith("hydra/launcher=") for word in words):
        return command
    try:
        config_dir, _ = _words(command)
    except ValueError:
        return command
    own = config_dir_of(shlex.split(command)[len(("python", "-m", "sweep")) :])[1]
    bare = [word for word in own if word != "-m" and word not in words]
    return commands.spelled("sweep", ["-m", *bare, *words], config_dir)


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
