"""`sweep.versus`: two commits side by side, and what is recorded of the base like for like."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.facts import Facts
from sweep.store import Reader
from sweep.versus import main
from tests.sweep.commands import ROOT, command
from tests.sweep.conftest import CASE
from tests.sweep.recording import night
from tests.sweep.revisions import TRAINER, git, history, state, words_for

Make = Callable[..., Facts]
SAME = {"thresholds": "t1", "host": "h", "torch": "2.13.0"}
AT_BASE = {"git_sha": "a" * 40, "git_dirty": "false", "trainer_code": "c1"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A trainer in three commits: the third is off in other layouts than one process."""
    first = {"train.py": TRAINER, "rates.py": "OFF = 0.0\n"}
    changed = [{"rates.py": f"OFF = {off}\n# changed\n"} for off in (0.0, 0.5)]
    history(tmp_path / "trainer", [first, *changed])
    return tmp_path / "trainer"


@pytest.mark.slow
def test_a_regression_is_told_and_what_is_recorded_is_not_run_again(
    repo: Path, outputs: Path
) -> None:
    words = [*words_for("train.py", outputs), "layout=single,cp2_ep1"]
    before = state(repo)

    def versus(base: str, head: str) -> subprocess.CompletedProcess[str]:
        named = (f"base={base}", f"head={head}", *words)
        return command("versus", *named, cwd=repo, PYTHONPATH=str(ROOT))

    first = versus("HEAD~2", "HEAD~1")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "no regression in 2 cases" in first.stdout
    assert state(repo) == before
    sweeps = len(list(outputs.glob("*/sweep.json")))
    assert sweeps == 2
    second = versus("HEAD~1", "HEAD")
    assert second.returncode == 1, second.stdout + second.stderr
    assert "recorded before: llama-cp2_ep1-none, llama-single-none" in second.stderr
    assert len(list(outputs.glob("*/sweep.json"))) == sweeps + 1
    shas = [git(repo, "rev-parse", ref)[:9] for ref in ("HEAD~1", "HEAD")]
    assert (
        f"base {shas[0]} (adhoc)\nhead {shas[1]} (adhoc)\nmoved: git_sha {shas[0]}" in second.stdout
    )
    assert re.search(r"llama-cp2_ep1-none: passed > failed \(.*parity\)", second.stdout)
    removing = re.findall(r"to remove it: (git .*)$", second.stderr, re.MULTILINE)
    for line in removing:
        subprocess.run(shlex.split(line), check=True)
    assert state(repo) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["base=HEAD"], "base and head are both"),
        (["base=gone"], "base=gone: {repo} has no such commit"),
        (["base=HEAD~1"], "say what to run: suite=smoke"),
        (["base=HEAD~1", "suite=smoke", "shard=1/2"], "shard=...: both commits run the same"),
        (["suite=smoke"], "base=... is missing"),
        (["base=HEAD", "repo={outputs}"], "repo={outputs}: no git repository"),
    ],
)
def test_a_wrong_request_is_one_line(
    repo: Path,
    outputs: Path,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(repo)
    places = {"repo": repo, "outputs": outputs}
    assert main([word.format(**places) for word in words]) == 2
    error = capsys.readouterr().err
    assert said.format(**places) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("changed", "is_like"),
    [
        ({}, True),
        ({"trainer_code": "c2", "thresholds": "t2"}, True),
        ({"git_dirty": "true"}, False),
        ({"torch": "2.14.0"}, False),
        ({"host": "other"}, False),
        ({"git_sha": "b" * 40}, False),
    ],
)
def test_a_record_is_like_for_like_if_only_the_trainers_code_is_another(
    outputs: Path, make_facts: Make, changed: dict[str, str], is_like: bool
) -> None:
    def facts(environment: dict[str, str]) -> Facts:
        return make_facts().model_copy(update={"environment": environment})

    night(outputs, 1, facts(SAME | AT_BASE | changed))
    head = night(outputs, 2, facts(SAME | {"git_sha": "c" * 40, "git_dirty": "false"}))
    reader = Reader.at(outputs)
    found = reader.at_commit("a" * 40, reader.cases(reader.find(head)))
    assert [one.case_id for one in found] == ([CASE.id] if is_like else [])


def test_a_record_with_other_settings_is_not_like_for_like(outputs: Path, make_facts: Make) -> None:
    other = make_facts().model_copy(update={"environment": SAME | AT_BASE})
    assert other.identity is not None
    other.identity.settings["optim.lr"] = 1e-3
    night(outputs, 1, other)
    head = night(outputs, 2, make_facts().model_copy(update={"environment": SAME}))
    reader = Reader.at(outputs)
    assert reader.at_commit("a" * 40, reader.cases(reader.find(head))) == []


@pytest.mark.slow
@pytest.mark.nightly
def test_the_built_in_trainer_is_compared_in_two_trees(tmp_path: Path) -> None:
    """As printed, in a repository with a copy of it; its next version has twice the rate."""
    repo = tmp_path / "copy"
    history(repo, [{"README": "A copy of the built-in trainer."}])
    for place in (ROOT / "sft", *ROOT.glob("sweep_taps*")):
        copy = shutil.copytree if place.is_dir() else shutil.copy
        copy(place, repo / place.name)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "copied")
    git(repo, "checkout", "--quiet", "-b", "change")
    loop = repo / "sft" / "optimizer.py"
    text = loop.read_text()
    assert "lr=config.optim.lr" in text
    loop.write_text(text.replace("lr=config.optim.lr", "lr=2 * config.optim.lr"))
    git(repo, "commit", "--quiet", "--all", "--message", "twice the rate")
    done = command(
        "versus", "base=main", "suite=smoke", cwd=repo, seconds=800, PYTHONPATH=str(ROOT)
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "moved: trainer_code" in done.stdout
    assert re.search(r"llama-single-base: passed > failed \(.*oracle.*\)", done.stdout)
