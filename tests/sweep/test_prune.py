"""What goes of old nights, and that they are judged and shown as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import prune
from sweep.cli.arguments import run
from sweep.facts import Facts
from sweep.history import __main__ as history
from sweep.store import Location, Reader
from tests.sweep.conftest import CASE
from tests.sweep.recording import ended, judge_again, record, sweep_folder

Make = Callable[..., Facts]
DAY = 86_400.0


def pruned(outputs: Path, *words: str) -> int:
    return run(prune.USAGE, prune.main, [f"outputs={outputs}", *words])


def nights(outputs: Path, make_facts: Make, count: int) -> list[Path]:
    """Recorded, with a log of 2 MB, a checkpoint and a link in each case; none runs any more."""
    folders = []
    for day in range(count):
        sweep_id = f"2026010{day + 1}-000000"
        facts = make_facts().model_copy(update={"sweep_id": sweep_id, "started": day * DAY + 5})
        sweep_folder(outputs, facts, sweep_id=sweep_id, experiment="nightly", began=day * DAY)
        launch = outputs / sweep_id / CASE.id / "launches" / "1_train"
        (launch / "checkpoint").mkdir(parents=True)
        (launch / "checkpoint" / "weights").write_bytes(b"w" * 1_000_000)
        (launch / "launcher.log").write_bytes(b"begins" + b"x" * 2_000_000 + b"ends")
        record(outputs, facts, sweep_id=sweep_id, experiment="nightly", began=day * DAY)
        ended(outputs / sweep_id)
        folders.append(outputs / sweep_id)
    return folders


def artifacts(outputs: Path, sweep_id: str) -> set[str]:
    reader = Reader.at(outputs)
    (case,) = reader.cases(reader.find(sweep_id))
    client = reader.location.client
    return {file.path for file in client.list_artifacts(case.run_id)}


def test_old_nights_lose_what_is_large_and_keep_facts_and_verdicts(
    outputs: Path, make_facts: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = nights(outputs, make_facts, 2)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (old / CASE.id / "link").symlink_to(outside)
    (old / "detection.md").write_text("# table")
    (old / "warm.log").write_text("x")
    assert pruned(outputs, "keep=1", "dry=true") == 0
    assert "3.0 MB would be freed" in capsys.readouterr().out
    assert (old / CASE.id / "launches").is_dir()

    assert pruned(outputs, "keep=1") == 0
    assert f"{old.name}: 3.0 MB" in capsys.readouterr().out
    kept = {"case.json", "facts.json", "recorded.json"}
    assert {path.name for path in (old / CASE.id).iterdir()} == kept
    assert (old / "detection.md").is_file()
    assert not (old / "warm.log").exists()
    assert outside.read_text() == "mine"
    assert (new / CASE.id / "launches" / "1_train" / "checkpoint" / "weights").is_file()
    assert artifacts(outputs, old.name) == {"case.json", "facts.json"}
    assert "launches" in artifacts(outputs, new.name)

    assert judge_again(outputs, sweep=old.name) == 0
    assert history.main([f"outputs={outputs}"]) == 0
    assert "✓✓" in capsys.readouterr().out
    assert pruned(outputs, "keep=1") == 0
    assert "0.0 MB freed" in capsys.readouterr().out


def test_of_a_large_log_mlflow_has_head_and_tail(outputs: Path, make_facts: Make) -> None:
    (folder,) = nights(outputs, make_facts, 1)
    reader = Reader.at(outputs)
    (case,) = reader.cases(reader.find(folder.name))
    name = "launches/1_train/launcher.log"
    kept = Path(reader.location.client.download_artifacts(case.run_id, name)).read_bytes()
    assert len(kept) < 1_001_000
    assert kept.startswith(b"begins")
    assert kept.endswith(b"ends")
    assert b"bytes left out" in kept


def test_pinned_sweeps_and_those_that_run_are_left_alone(outputs: Path, make_facts: Make) -> None:
    pinned, running, _ = nights(outputs, make_facts, 3)
    client = Location.at(outputs).client
    reader = Reader.at(outputs)
    client.set_tag(reader.find(pinned.name).run_id, "baseline", "pinned")
    from sweep.case.folder import this_driver

    ended(running, this_driver())
    client.update_run(reader.find(running.name).run_id, status="RUNNING")
    assert pruned(outputs, "keep=1") == 0
    for folder in (pinned, running):
        assert (folder / CASE.id / "launches").is_dir()
        assert "launches" in artifacts(outputs, folder.name)


def test_two_sweeps_of_a_day_are_one_night(outputs: Path, make_facts: Make) -> None:
    for hour in ("01", "02"):
        sweep_id = f"20260101-{hour}0000"
        facts = make_facts().model_copy(update={"sweep_id": sweep_id})
        sweep_folder(outputs, facts, sweep_id=sweep_id, experiment="x", began=float(hour) * 3600)
        ended(outputs / sweep_id)
    sweep_folder(outputs, make_facts(), sweep_id="20260102-000000", experiment="x", began=DAY + 1)
    assert [folder.name for folder in prune.beyond(outputs, 1)] == [
        "20260101-010000",
        "20260101-020000",
    ]
    assert prune.beyond(outputs, 2) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["keep=0"], "keep=0: say how many nights"),
        ([], "keep=... is missing"),
        (["keep=x"], "keep=x: say how many"),
        (["keep=1", "dry=y"], "dry=y: say true or false"),
        (["keep=1", "outputs=/none"], "outputs=/none: there is no such folder"),
    ],
)
def test_a_wrong_request_removes_nothing(
    outputs: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert pruned(outputs, *words) == 2
    assert said in capsys.readouterr().err
