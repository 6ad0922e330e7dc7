"""`sweep.bisect`: the first bad commit of a history, and the first bad release of a package."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.bisect import USAGE, main
from sweep.checks import Context, Finding, Outcome
from sweep.cli.arguments import run
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.judge import judge
from sweep.judge.verdict import Judgement, Verdict
from sweep.revisions import releases
from sweep.revisions.failure import Shown, State
from tests.sweep.commands import ROOT, command, processes_of
from tests.sweep.conftest import CASE as LABELS
from tests.sweep.revisions import (
    CRASHES,
    TRAINER,
    history,
    planned_sweep,
    state,
    words_for,
)
from tests.sweep.waiting import until

COMMITS = 30
FIRST_BAD = 17
CANNOT_RUN = {3, 8, 14, 20, 22}
Make = Callable[..., Facts]
CASE = "llama-cp2_ep1-none"
LAYOUTS = ("single", "cp2_ep1")


def planted() -> list[dict[str, str]]:
    """Losses are off from FIRST_BAD on; those that cannot run are good or bad underneath."""
    files = []
    for number in range(COMMITS):
        rates = CRASHES if number in CANNOT_RUN else f"OFF = {0.5 * (number >= FIRST_BAD)}\n"
        files.append({"rates.py": f"{rates}# {number}\n"})
    files[0]["train.py"] = TRAINER
    return files


@pytest.mark.slow
def test_the_first_bad_of_thirty_commits_is_found(tmp_path: Path) -> None:
    repo, outputs = tmp_path / "trainer", tmp_path / "outputs"
    shas = history(repo, planted())
    words = words_for(str(repo / "train.py"), outputs)
    planned_sweep(outputs, words, LAYOUTS)
    (repo / "rates.py").write_text("OFF = 7  # not committed\n")
    before = state(repo)
    found = command("bisect", f"case={CASE}", f"good={shas[0]}", "bad=main", f"outputs={outputs}")
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"first bad commit: {shas[FIRST_BAD][:9]}\n  Ada <ada@example.org>, " in found.stdout
    assert f"    change {FIRST_BAD}\n\n    Why.\n" in found.stdout
    assert f"before {shas[FIRST_BAD - 1][:9]}: loss 2.9 > 2.5, grad_norm 1 > 1\n" in found.stdout
    assert f"after  {shas[FIRST_BAD][:9]}: loss 3.4 > 3, grad_norm 1 > 1\n" in found.stdout
    assert "  step 1: loss 2.9 > 3.4\n" in found.stdout
    assert "  parity: step 1: loss is 3.4, 2.9 in llama-single-none" in found.stdout
    assert state(repo) == before
    assert (repo / "rates.py").read_text() == "OFF = 7  # not committed\n"
    (tried,) = re.findall(r"^(\d+) tried, \d of them could not run", found.stdout, re.MULTILINE)
    assert int(tried) < COMMITS / 2


def small(tmp_path: Path, *rates: str) -> tuple[Path, list[str], Path]:
    """A repository with a commit for each of these, and a planned sweep of its trainer."""
    files = [{"rates.py": f"{text}\n# {number}\n"} for number, text in enumerate(rates)]
    shas = history(tmp_path / "trainer", [files[0] | {"train.py": TRAINER}, *files[1:]])
    outputs = tmp_path / "outputs"
    planned_sweep(outputs, words_for(str(tmp_path / "trainer/train.py"), outputs), LAYOUTS)
    return tmp_path / "trainer", shas, outputs


RIGHT, WRONG = "OFF = 0.0", "OFF = 0.5"


@pytest.mark.slow
def test_what_could_not_run_before_the_first_bad_commit_may_be_it(tmp_path: Path) -> None:
    _, shas, outputs = small(tmp_path, RIGHT, CRASHES, WRONG)
    found = command(
        "bisect", f"case={CASE}", f"good={shas[0]}", f"bad={shas[2]}", f"outputs={outputs}"
    )
    assert found.returncode == 1, found.stderr
    assert "the first bad commit is one of these" in found.stdout
    assert f"\n  {shas[1][:9]}\n" in found.stdout
    assert f"\n  {shas[2][:9]}\n" in found.stdout
    assert (
        "cannot run  exit: train: exit code 1 before its first step: RuntimeError" in found.stderr
    )


@pytest.mark.slow
def test_a_commit_that_hangs_cannot_run(tmp_path: Path) -> None:
    hangs = "import time; time.sleep(600)\nOFF = 0.5"
    _, shas, outputs = small(tmp_path, RIGHT, RIGHT, hangs, WRONG)
    found = command("bisect", f"case={CASE}", f"good={shas[0]}", "timeout=4", f"outputs={outputs}")
    assert found.returncode == 1, found.stderr
    assert "cannot run  exit: train: still running at the limit of 4 s" in found.stderr
    assert f"\n  {shas[2][:9]}\n" in found.stdout


@pytest.mark.slow
def test_a_crash_can_be_what_is_searched_for(tmp_path: Path) -> None:
    other = "import no_such_module"
    _, shas, outputs = small(tmp_path, RIGHT, other, WRONG, RIGHT, CRASHES, CRASHES)
    found = command("bisect", f"case={CASE}", f"good={shas[0]}", f"outputs={outputs}")
    assert found.returncode == 0, found.stderr
    assert f"first bad commit: {shas[4][:9]}" in found.stdout
    assert f"after  {shas[4][:9]}: no step\n" in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (1, 2, "good={good} is not good: parity: step 1: loss is 3.4, 2.9 in llama-single-none"),
        (0, 3, "bad={bad} is not bad: the case passes there as at good; check=NAME"),
        (2, 0, "is not before bad="),
        (0, 0, "is not before bad="),
    ],
)
def test_ends_that_are_not_what_they_are_said_to_be_are_one_line(
    tmp_path: Path, good: int, bad: int, said: str
) -> None:
    repo, shas, outputs = small(tmp_path, RIGHT, WRONG, WRONG, RIGHT)
    before = state(repo)
    done = command(
        "bisect", f"case={CASE}", f"good={shas[good]}", f"bad={shas[bad]}", f"outputs={outputs}"
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert said.format(good=shas[good][:9], bad=shas[bad][:9]) in last
    assert "Traceback" not in done.stderr
    assert state(repo) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["case=llama-cp2_ep2-none"], "did you mean llama-cp2_ep1-none"),
        (["good=nothing"], "good=nothing: {repo} has no such commit"),
        (["repo={outputs}"], "repo={outputs}: no git repository"),
        (["wheels=w"], "say which package=NAME"),
        (["package=a", "repo=b"], "say one"),
        (["timeout=soon"], "timeout=soon: say a number of seconds"),
        (["package=a", "wheels={outputs}/none"], "no such folder"),
        (["package=a", "wheels={outputs}"], "package=a: no release of it in"),
        (["sweep=none"], "no sweep none in"),
    ],
)
def test_a_wrong_request_is_one_line(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    repo, shas, outputs = small(tmp_path, RIGHT, WRONG)
    given = {"case": CASE, "good": shas[0], "bad": shas[1], "outputs": str(outputs)}
    places = {"repo": repo, "outputs": outputs}
    given |= dict(word.format(**places).split("=", 1) for word in words)
    assert run(USAGE, main, [f"{key}={value}" for key, value in given.items()]) == 2
    error = capsys.readouterr().err
    assert said.format(**places) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "cut"),
    [(["good=gone"], " shows them"), (["good=HEAD", "bad=HEAD~1"], " names a commit")],
)
def test_what_git_is_asked_in_a_complaint_runs(
    tmp_path: Path, words: list[str], cut: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it names two commits for, the reader adds."""
    _, shas, outputs = small(tmp_path, RIGHT, WRONG)
    assert run(USAGE, main, [f"case={CASE}", *words, f"outputs={outputs}"]) == 2
    printed = re.findall(r"git -C .*", capsys.readouterr().err)[0].partition(cut)[0]
    more = ["HEAD", "HEAD~1"] if "merge-base" in printed else []
    done = subprocess.run([*shlex.split(printed), *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert shas[0] in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_worktree_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    repo, shas, outputs = small(tmp_path, "import time; time.sleep(600)\nOFF = 0.0", WRONG)
    before = state(repo)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sweep.bisect",
            f"case={CASE}",
            f"good={shas[0]}",
            f"bad={shas[1]}",
            f"outputs={outputs}",
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = lambda: [line for line in processes_of(outputs) if "train.py" in line]  # noqa: E731
    until(running, "the trainer runs", 120)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert state(repo) == before
    assert processes_of(outputs) == []


@pytest.mark.slow
def test_a_trainer_is_run_from_where_it_was_started(tmp_path: Path) -> None:
    """By a relative path, and by a module of this folder."""
    repo, shas, outputs = small(tmp_path, RIGHT, WRONG)
    argv = json.dumps(["{python}", "-m", "train", "{output_dir}", "{steps}", "{cp}"])
    words = [*words_for("train.py", outputs)[:3], f"trainer.argv={argv}", f"outputs={outputs}"]
    for trainer in (words, words_for("train.py", outputs)):
        with contextlib.chdir(repo):
            planned_sweep(outputs, trainer, LAYOUTS)
        found = command(
            "bisect",
            f"case={CASE}",
            f"good={shas[0]}",
            f"bad={shas[1]}",
            f"outputs={outputs}",
            cwd=repo,
            PYTHONPATH=str(ROOT),
        )
        assert found.returncode == 0, found.stderr
        assert f"first bad commit: {shas[1][:9]}" in found.stdout


def shown(**messages: str) -> Shown:
    return Shown(checks=messages)


@pytest.mark.parametrize(
    ("seen", "wanted", "state"),
    [
        (shown(), shown(parity="x"), State.GOOD),
        (shown(parity="y", alive="z"), shown(parity="x"), State.BAD),
        (shown(alive="z"), shown(parity="x"), State.CANNOT_RUN),
        (Shown(checks={"exit": "", "parity": ""}, ending="a"), shown(parity="x"), State.CANNOT_RUN),
        (shown(parity="x"), Shown(checks={"exit": "", "parity": ""}, ending="a"), State.CANNOT_RUN),
        (
            Shown(checks={"exit": "1"}, ending="a"),
            Shown(checks={"exit": "2"}, ending="a"),
            State.BAD,
        ),
        (
            Shown(checks={"exit": "1"}, ending="b"),
            Shown(checks={"exit": "1"}, ending="a"),
            State.CANNOT_RUN,
        ),
    ],
)
def test_only_the_failure_that_is_searched_for_makes_a_commit_bad(
    seen: Shown, wanted: Shown, state: State
) -> None:
    assert seen.state(wanted) is state


def test_an_advisory_finding_counts_where_its_check_is_asked_for(make_facts: Make) -> None:
    findings = [
        Finding(check="drift", outcome=Outcome.FAIL, message="off", advisory=True),
        Finding(check="alive", outcome=Outcome.FAIL, message="still"),
        Finding(check="parity", outcome=Outcome.FAIL, known="#1"),
    ]
    judgement = Judgement(case=LABELS, verdict=Verdict.FAILED, findings=findings)
    assert Shown.of(judgement, make_facts(), None).checks == {"alive": "still"}
    assert Shown.of(judgement, make_facts(), "drift").checks == {"drift": "off"}


def test_two_endings_are_the_same_whatever_numbers_they_name(make_facts: Make) -> None:
    def ended(said: str, **launch: object) -> Shown:
        facts = make_facts(exit_code=1, failure=said, **launch)
        return Shown.of(judge(facts, Context()), facts, None)

    first = ended("KeyError: 12 at 0x7f12")
    assert ended("KeyError: 7 at 0xaa").state(first) is State.BAD
    assert ended("ValueError: 7 at 0xaa").state(first) is State.CANNOT_RUN
    assert ended("KeyError: 7 at 0xaa", timed_out=True).state(first) is State.CANNOT_RUN
    assert "KeyError: 12 at 0x7f12" in first.line


# Releases.

PACKAGE = "tinyrates"


def wheel(folder: Path, version: str, off: str) -> None:
    """A wheel with one module."""
    info, path = f"{PACKAGE}-{version}.dist-info", folder / f"{PACKAGE}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("rates.py", f"{off}\n")
        head = f"Name: {PACKAGE}\nVersion: {version}\n"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\n{head}")
        tags = "Generator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\n{tags}")
        file.writestr(f"{info}/RECORD", "")


VERSIONS = {
    "0.9": RIGHT,
    "1.0": RIGHT,
    "1.1": RIGHT,
    "1.2": CRASHES,
    "1.10": WRONG,
    "1.11": WRONG,
    "2.0": WRONG,
}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version, off in VERSIONS.items():
        wheel(folder, version, off)
    (folder / "broken-1.0.whl").write_text("no wheel")
    (folder / f"{PACKAGE}-1.5-py3-none-any.whl").write_text("cannot be installed")
    return folder


@pytest.mark.slow
def test_the_first_bad_release_is_found_in_a_folder_of_wheels(tmp_path: Path, wheels: Path) -> None:
    script, outputs = tmp_path / "train.py", tmp_path / "outputs"
    script.write_text(TRAINER)
    planned_sweep(outputs, words_for(str(script), outputs), LAYOUTS)
    found = command(
        "bisect",
        f"case={CASE}",
        f"package={PACKAGE}",
        "good=1.0",
        "bad=2.0",
        f"wheels={wheels}",
        f"outputs={outputs}",
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert f"the first bad release of {PACKAGE} is one of these" in found.stdout
    names = re.findall(r"^  ([\d.]+)$", found.stdout, re.MULTILINE)
    assert sorted(names) == ["1.10", "1.2", "1.5"]
    for version in ("1.2", "1.5"):
        (wheels / f"{PACKAGE}-{version}-py3-none-any.whl").unlink()
    found = command(
        "bisect",
        f"case={CASE}",
        f"package={PACKAGE}",
        "good=1.0",
        f"wheels={wheels}",
        f"outputs={outputs}",
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"first bad release of {PACKAGE}: 1.10\n" in found.stdout
    assert "before 1.1: loss 2.9 > 2.5" in found.stdout
    assert "after  1.10: loss 3.4 > 3" in found.stdout


def test_releases_are_ordered_as_versions_and_may_be_searched_backwards(wheels: Path) -> None:
    wheel(wheels, "1.8rc1", RIGHT)  # left out
    known = releases.known(PACKAGE, str(wheels), sys.executable)
    assert [str(one) for one in known] == ["0.9", "1.0", "1.1", "1.2", "1.5", "1.10", "1.11", "2.0"]
    chosen = releases.between(known, PACKAGE, "1.1", "1.10")
    assert [str(one) for one in chosen] == ["1.1", "1.2", "1.5", "1.10"]
    assert releases.between(known, PACKAGE, "1.10", "1.1") == chosen[::-1]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("1.7", "2.0", "good=1.7: no such release of tinyrates; the last are"),
        ("1.0", "new", "bad=new: no version, as 1.2.0 is one"),
        ("1.0", "1.0", "good and bad are both 1.0"),
    ],
)
def test_a_release_that_is_none_is_refused(wheels: Path, good: str, bad: str, said: str) -> None:
    known = releases.known(PACKAGE, str(wheels), sys.executable)
    with pytest.raises(RequestError, match=re.escape(said)):
        releases.between(known, PACKAGE, good, bad)


def test_pips_list_of_releases_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "thing (2.0)\nAvailable versions: 2.0, 1.10, 1.9\n  INSTALLED: 1.9\n"
    monkeypatch.setattr(releases, "_pip", lambda *words: said)
    found = releases.known("thing", None, sys.executable)
    assert [str(one) for one in found] == ["1.9", "1.10", "2.0"]


def test_a_trainer_with_an_interpreter_of_its_own_has_no_releases_to_search(
    tmp_path: Path, wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = tmp_path / "outputs"
    words = [word.replace("{python}", "python3") for word in words_for("train.py", outputs)]
    planned_sweep(outputs, words, LAYOUTS)
    given = [f"case={CASE}", f"package={PACKAGE}", "good=1.0", "bad=2.0", f"wheels={wheels}"]
    assert run(USAGE, main, [*given, f"outputs={outputs}"]) == 2
    assert "starts an interpreter of its own choice; write {python}" in capsys.readouterr().err
