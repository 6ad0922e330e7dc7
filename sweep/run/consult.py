"""Ask the oracle what a launch should have computed, once for all cases with the same batches.

The oracle (docs/oracle.md) is a program of its own, forked from the case's warm server like a
trainer's ranks. Its answer is kept under a key of everything that determines it: checkpoint,
documents of each step, settings, device, the oracle's code and versions.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache as remember
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from oracle import batches
from oracle.errors import OracleError
from sweep.facts import LaunchFacts, OracleFacts, Step
from sweep.files import write_json, write_text
from sweep.provenance import version
from sweep.run.compile_cache import default_cache
from sweep.trainers.base import Command, Launch

FOLDER = "oracle"  # in the case's folder
TAPS = "taps"  # in a launch's folder
VARIABLE = "SWEEP_TAPS"  # as in sweep_taps.py
ANSWER, REPORTED = "answer.json", "reported.jsonl"
LIBRARIES = ("torch", "transformers", "safetensors", "tokenizers", "jinja2")
LOCK_SECONDS = 600.0
MANIFEST = "tiny_model.json"

Run = Callable[[Launch, Command, Path], LaunchFacts]
"""Starts one process and waits for its end."""


@dataclass(frozen=True)
class Question:
    """What a launch trained, and by which definitions."""

    checkpoint: Path
    taps: Path
    settings: Mapping[str, Any]
    device: str
    steps: batches.Steps
    reported: Sequence[Mapping[str, Any]] = ()
    """Loss and gradient norm of the trainer, which settle close picks; see oracle/ties.py."""

    @property
    def key(self) -> str:
        """Digest of everything that determines the answer."""
        manifest = (self.checkpoint / MANIFEST).read_bytes()
        parts = {
            "checkpoint": hashlib.sha256(manifest).hexdigest(),
            "batches": batches.digest(self.steps),
            "rows": _rows(self.steps) if self.settings.get("source") else "",
            "settings": dict(self.settings),
            "source": _digest_of(self.settings.get("source")),
            "device": self.device,
            "reported": [dict(figures) for figures in self.reported],
            "code": code_digest(),
            "versions": {name: version(name) for name in LIBRARIES},
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def consult(
    checkpoint: Path, settings: Mapping[str, Any], device: str, case_dir: Path, first: LaunchFacts,
    run: Run,
) -> OracleFacts:  # fmt: skip
    """What the oracle answers about a case's first launch, or why nothing."""
    if first.exit_code != 0 or first.timed_out:
        return OracleFacts(reason="the trainer did not end well")
    taps = case_dir / first_folder(first) / TAPS
    if not taps.is_dir():
        return OracleFacts(reason="the trainer shows no batches; it may call sweep_taps.batch")
    try:
        question = Question(checkpoint, taps, settings, device, batches.read([taps]))
        return _kept(
            question, first.metrics.steps, lambda told: _asked(told, case_dir / FOLDER, run)
        )
    except OracleError as error:
        return OracleFacts(reason=str(error), is_wrong=True)


def first_folder(first: LaunchFacts) -> Path:
    """A launch's folder, relative to its case's."""
    return Path(first.directory)


def hinges_on_a_pick(ours: Sequence[Step], answer: OracleFacts) -> bool:
    """Whether the trainer is off at a step from which on a pick could fall either way."""
    steps, is_close = {step.step: step for step in ours}, False
    for theirs in answer.steps:
        is_close = is_close or bool((theirs.model_extra or {}).get("close_picks"))
        if is_close and theirs.step in steps and _is_off(steps[theirs.step], theirs):
            return True
    return False


def _is_off(ours: Step, theirs: Step) -> bool:
    pairs = ((ours.loss, theirs.loss, 5e-7), (ours.grad_norm, theirs.grad_norm, 5e-6))
    return any(
        a is not None and b is not None and not math.isclose(a, b, rel_tol=limit)
        for a, b, limit in pairs
    )


def _figures(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{"step": s.step, "loss": s.loss, "grad_norm": s.grad_norm} for s in steps]


def _kept(
    question: Question, ours: Sequence[Step], ask: Callable[[Question], OracleFacts]
) -> OracleFacts:
    """The answer in the cache; else it is asked for, by one process at a time, and kept.

    The trainer's figures are told with the question. Where no pick fell as they say, the answer is
    that of every case with these batches.
    """
    told = replace(question, reported=_figures(ours))
    try:
        folder = default_cache() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        common, own = (folder / f"{asked.key}.json" for asked in (question, told))
        with FileLock(f"{common}.lock", timeout=LOCK_SECONDS):
            known = _read(common)
            if known is None or hinges_on_a_pick(ours, known):
                known = _read(own)
            if known is not None:
                return known.model_copy(update={"is_cached": True})
            answer = ask(told)
            if not answer.reason:
                write_json(own if _has_turned(answer) else common, answer.model_dump())
            return answer
    except (OSError, Timeout):  # nothing can be kept here
        return ask(told)


def _has_turned(answer: OracleFacts) -> bool:
    return any((step.model_extra or {}).get("turned_picks") for step in answer.steps)


def _read(path: Path) -> OracleFacts | None:
    with suppress(OSError, ValueError):  # a damaged one is asked for again
        return OracleFacts.model_validate_json(path.read_bytes())
    return None


def _asked(question: Question, folder: Path, run: Run) -> OracleFacts:
    """The answer of a process of its own."""
    folder.mkdir(exist_ok=True)
    chosen = folder / "settings.json"
    write_json(chosen, dict(question.settings))
    argv = [str(question.checkpoint), str(question.taps), "--settings", str(chosen),
            "--device", question.device]  # fmt: skip
    if question.reported:
        lines = "".join(json.dumps(dict(figures)) + "\n" for figures in question.reported)
        write_text(folder / REPORTED, lines)
        argv += ["--reported", str(folder / REPORTED)]
    done, said = asked("oracle", argv, folder, max(question.steps), run)
    if said is None:
        return OracleFacts(reason=failure(done, FOLDER))
    return OracleFacts(
        steps=said["steps"], data=said["data"], seconds=done.seconds, cpu_seconds=done.cpu_seconds
    )


def asked(
    module: str, words: Sequence[str], folder: Path, last: int, run: Run
) -> tuple[LaunchFacts, dict[str, Any] | None]:
    """How a process of the oracle ended, and its answer if there is one."""
    answer = folder / ANSWER
    argv = _torchrun(["-m", module, *words, "--out", str(answer)], folder)
    done = run(Launch(folder.name, 1, last), Command(argv), folder)
    if done.exit_code != 0 or not answer.is_file():
        return done, None
    return done, json.loads(answer.read_text(encoding="utf-8"))


def failure(done: LaunchFacts, folder: str) -> str:
    """Why a process of the oracle has no answer."""
    why = done.failure or done.refused or f"exit code {done.exit_code}"
    return f"the oracle failed ({why}); see {folder}/launcher.log"


def _torchrun(argv: list[str], folder: Path) -> list[str]:
    """As one rank of torchrun, which is what a warm server forks."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1",
        "--log-dir", str(folder / "ranks"), "--tee", "3", *argv,
    ]  # fmt: skip


@remember
def code_digest() -> str:
    """Of the oracle's own files."""
    spec = find_spec("oracle")
    places = list(spec.submodule_search_locations or []) if spec else []
    total = hashlib.sha256()
    for path in sorted(path for place in places for path in Path(place).glob("*.py")):
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def _rows(steps: batches.Steps) -> list[list[str]]:
    """Which documents lie in a row in which order, whatever the rows' names and order."""
    rows: dict[tuple[int, str], list[str]] = {}
    for step, documents in steps.items():
        for document in documents:
            rows.setdefault((step, document.row), []).append(document.digest)
    return sorted(rows.values())


def _digest_of(source: str | None) -> str:
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
