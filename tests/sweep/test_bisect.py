"""`sweep.bisect`: the first bad commit of a history, and the first bad release of a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweep.commands import command, sweep
from tests.sweep.revisions import CRASHES, TRAINER, git, history, state, words_for

COMMITS = 30
FIRST_BAD = 17
CANNOT_RUN = {3, 8, 14, 20, 22}
CASE = "llama-cp2_ep1-none"


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
    assert sweep("-m", "layout=single,cp2_ep1", *words).returncode == 1
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
    assert git(repo, "worktree", "prune", "--dry-run") == ""
