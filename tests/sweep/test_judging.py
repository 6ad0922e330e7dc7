"""Judging a recorded sweep again, from what MLflow has of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from sweep import facts as facts_file
from sweep import judge as judge_module
from sweep import report
from sweep.checks import CHECKS, Context, Finding, Outcome, thresholds
from sweep.checks.thresholds import Table
from sweep.facts import Facts, Step
from sweep.files import ConfDirs, write_json
from sweep.judge import Verdict, unavailable
from sweep.judge.__main__ import main as judge_main
from sweep.session import closing
from sweep.store import CaseRecord, End, Location, Reader, Writer, verdicts
from tests.sweep.confs import limits
from tests.sweep.conftest import CASE
from tests.sweep.recording import DEAD, SWEEP, judge_again, named, record, sweep_folder

Make = Callable[..., Facts]


def resumed(make_facts: Make, off_by: float) -> Facts:
    facts = make_facts()
    facts.asked["resume_at"] = [2]
    steps = [step.model_copy(update={"loss": step.loss + off_by}) for step in facts.steps[2:]]
    facts.launches += make_facts(
        steps, name="resume", directory="launches/2_resume", first_step=3, started=20.0
    ).launches
    return facts


def read_back(outputs: Path) -> dict[str, CaseRecord]:
    reader = Reader.at(outputs)
    return {case.case_id: case for case in reader.cases(reader.find("latest"))}


def loosen(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Every threshold of the check resume."""
    values = limits().model_dump()
    for figure in values["thresholds"]["resume"].values():
        for one in figure.values():
            for threshold in one.values():
                threshold["value"] = value
                threshold["mean"] = None
    table = Table.model_validate(values)
    monkeypatch.setattr(thresholds, "table", lambda _: table)


def test_a_changed_threshold_changes_the_verdict_and_no_fact(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    record(outputs, resumed(make_facts, 1e-3))
    facts_file_here = outputs / SWEEP / CASE.id / "facts.json"
    before, first = facts_file_here.read_bytes(), read_back(outputs)[CASE.id]
    assert judge_again(outputs, sweep="latest") == 1
    assert first.tags["verdict"] == "failed"
    assert "off by" in first.tags["mlflow.note.content"]

    loosen(monkeypatch, 1e-2)
    capsys.readouterr()
    assert judge_again(outputs, sweep=SWEEP, experiment="adhoc") == 0
    assert "passed" in capsys.readouterr().out
    after = read_back(outputs)[CASE.id]
    assert after.run_id == first.run_id
    assert (after.tags["verdict"], after.tags["check.resume"]) == ("passed", "pass")
    assert (first.status, after.status) == ("FAILED", "FINISHED")
    assert after.tags["mlflow.note.content"].startswith("passed.")
    assert after.facts == first.facts
    assert facts_file_here.read_bytes() == before
    sweep = Reader.at(outputs).find("latest")
    assert sweep.status == "FINISHED"
    assert "1 passed" in sweep.tags["mlflow.note.content"]
    assert "1 passed" in (outputs / SWEEP / "summary.md").read_text()
    loosen(monkeypatch, 1e-6)
    assert judge_again(outputs) == 1
    assert read_back(outputs)[CASE.id].status == "FAILED"


def test_the_folder_of_the_sweep_is_not_needed(outputs: Path, make_facts: Make) -> None:
    both = [resumed(make_facts, 0.0), named(make_facts(exit_code=1), "other")]
    record(outputs, *both)
    shutil.rmtree(outputs / SWEEP)
    assert judge_again(outputs) == 1
    assert {case: one.tags["verdict"] for case, one in read_back(outputs).items()} == {
        CASE.id: "passed",
        "other": "crashed",
    }
    assert "crashed" in (outputs / "judged" / SWEEP / "summary.md").read_text()
    assert not (outputs / SWEEP).exists()


def test_a_resumed_launch_is_a_run_with_the_same_metric_at_the_same_time(
    outputs: Path, make_facts: Make
) -> None:
    record(outputs, resumed(make_facts, 0.0))
    client, case = Location.at(outputs).client, read_back(outputs)[CASE.id]
    experiment = Reader.at(outputs).find("latest").experiment_id
    (launch,) = client.search_runs([experiment], "tags.kind = 'launch'")
    assert launch.data.tags["case_run"] == case.run_id
    found = client.search_runs([experiment], "params.arch = 'llama' and params.steps = '5'")
    assert {run.data.tags["kind"] for run in found} == {"case", "launch"}
    assert (launch.data.tags["case_id"], launch.data.tags["arch"]) == (CASE.id, "llama")
    assert (launch.info.status, launch.info.run_name) == (
        "FINISHED",
        f"01-02 00:00 {CASE.id} 2_resume",
    )
    (ours, theirs) = (
        client.get_metric_history(run, "train/loss") for run in (case.run_id, launch.info.run_id)
    )
    assert [(one.step, one.timestamp, one.value) for one in theirs] == [
        (one.step, one.timestamp, one.value) for one in ours[2:]
    ]


def needs_the_other(_facts: Facts, context: Context) -> Finding | None:
    """As parity does."""
    seen = [
        *sorted(context.sweep),
        *(f"last good {case}" for case in context.last_good),
        *(f"pinned {case}" for case in context.pinned),
    ]
    return Finding(check="both", outcome=Outcome.PASS, message=", ".join(seen),
                   metrics={"both/seen": float(len(seen))})  # fmt: skip


def test_at_the_end_every_case_is_judged_with_all_others_and_earlier_sweeps(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKS, "both", needs_the_other)
    record(outputs, make_facts(), sweep_id="20260101-000000")
    first = Reader.at(outputs).find("latest")
    Location.at(outputs).client.set_tag(first.run_id, "baseline", "pinned")
    later = [make_facts(), named(make_facts(exit_code=1), "other"),
             named(make_facts(), "stopped", interrupted=True)]  # fmt: skip
    results = sweep_folder(outputs, *later, began=100.0)
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    for result in results:
        writer.record(result)
    judged, problem = closing.close(
        writer, outputs / SWEEP, results[:2], End(interrupted=True), ConfDirs()
    )
    assert problem is None
    everything = f"{CASE.id}, other, last good {CASE.id}, pinned {CASE.id}"
    assert [result.judgement.findings[-1].message for result in judged] == [everything] * 2
    assert read_back(outputs)["other"].metrics["both/seen"] == 4.0
    assert everything in (outputs / SWEEP / CASE.id / "findings.json").read_text()
    assert (outputs / SWEEP / CASE.id / "loss.png").is_file()
    sweep = Reader.at(outputs).find(SWEEP)
    assert sweep.status == "KILLED"
    client = Location.at(outputs).client
    assert {file.path for file in client.list_artifacts(sweep.run_id)} == {
        "sweep.json",
        "summary.md",
        "details.md",
        "history.html",
        "matrix.html",
        "junit.xml",
    }
    files = {file.path for file in client.list_artifacts(read_back(outputs)[CASE.id].run_id)}
    assert report.PLOT in files


def test_a_store_that_fails_leaves_the_judging_to_the_disk(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKS, "both", needs_the_other)
    results = sweep_folder(outputs, make_facts(), named(make_facts(), "other"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    for result in results:
        writer.record(result)
    judged, problem = closing.close(writer, outputs / SWEEP, results, End(), ConfDirs())
    assert [one.judgement.findings[-1].message for one in judged] == [f"{CASE.id}, other"] * 2
    assert problem is not None
    assert "not in MLflow (http://127.0.0.1:9)" in problem
    assert report.exit_code(judged, problem) == 3
    assert "2 passed" in (outputs / SWEEP / "summary.md").read_text()


def test_a_check_that_is_gone_leaves_no_tag_and_a_smaller_figure_is_shown(
    outputs: Path, make_facts: Make
) -> None:
    client = Location.at(outputs).client

    def update(*findings: Finding) -> bool:
        judgement = results[0].judgement.model_copy(update={"findings": list(findings)})
        changed = report.Result(judgement, results[0].folder, "", results[0].facts)
        return verdicts.update(client, read_back(outputs)[CASE.id], changed)

    results = record(outputs, make_facts())
    found = Finding(check="drift", outcome=Outcome.PASS, metrics={"drift/x[1]": 2.0})
    assert update(found)
    assert not update(found)  # nothing to say
    assert read_back(outputs)[CASE.id].metrics["drift/x_1_"] == 2.0
    assert update(found.model_copy(update={"metrics": {"drift/x[1]": 1.0}}))
    assert read_back(outputs)[CASE.id].metrics["drift/x_1_"] == 1.0
    infinite = found.model_copy(update={"metrics": {"drift/x[1]": float("inf")}})
    assert update(infinite)
    assert not update(infinite)
    assert update()
    assert "check.drift" not in read_back(outputs)[CASE.id].tags


def test_a_case_that_cannot_run_is_recorded_with_its_reason_and_never_passes(
    outputs: Path, make_facts: Make
) -> None:
    ran = sweep_folder(outputs, make_facts())
    case = CASE.model_copy(update={"id": "cannot"})
    folder = outputs / SWEEP / "cannot"
    write_json(folder / "case.json", {"case": case.model_dump(), "unavailable": "needs a GPU"})
    cannot = report.Result(unavailable(case, "needs a GPU"), folder, "python -m sweep")
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    writer.record(ran[0])
    judged, problem = closing.close(writer, outputs / SWEEP, [*ran, cannot], End(), ConfDirs())
    assert problem is None
    assert [one.judgement.verdict for one in judged] == [Verdict.PASSED, Verdict.UNAVAILABLE]
    there = read_back(outputs)["cannot"]
    assert (there.status, there.facts) == ("KILLED", None)
    assert there.tags["verdict"] == "unavailable"
    assert judged[1].case == case
    assert judge_again(outputs) == 0
    again = read_back(outputs)["cannot"]
    assert again.tags == there.tags
    assert again.tags["mlflow.note.content"].count("needs a GPU") == 1


def test_a_sweep_of_cases_that_cannot_run_makes_no_store(tmp_path: Path) -> None:
    cannot = report.Result(unavailable(CASE, "needs a GPU"), tmp_path / SWEEP / CASE.id, "")
    write_json(tmp_path / SWEEP / "sweep.json", {"driver": DEAD, "cases": [CASE.id]})
    writer = Writer(Location.at(tmp_path), tmp_path / SWEEP)
    judged, problem = closing.close(writer, tmp_path / SWEEP, [cannot], End(), ConfDirs())
    assert (judged, problem) == ([cannot], None)
    assert not (tmp_path / "mlflow.db").exists()


def test_an_interrupted_case_has_no_verdict_and_the_sweep_is_not_whole(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    record(outputs, make_facts(), named(make_facts(), "stopped", interrupted=True))
    assert judge_again(outputs) == 3
    assert "1 of 2 cases have no result" in capsys.readouterr().out
    stopped = read_back(outputs)["stopped"]
    assert stopped.status == "KILLED"
    assert "verdict" not in stopped.tags
    assert Reader.at(outputs).find("latest").status == "KILLED"


def test_a_case_whose_recording_was_cut_off_is_no_result(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    record(outputs, make_facts(), named(make_facts(), "cut"))
    run_id = read_back(outputs)["cut"].run_id
    (outputs / "artifacts" / run_id / "artifacts" / "facts.json").unlink()
    assert set(read_back(outputs)) == {CASE.id}
    assert judge_again(outputs) == 3
    assert "1 of 2 cases have no result" in capsys.readouterr().out


def test_a_case_that_ran_again_says_which_run_took_its_place(
    outputs: Path, make_facts: Make
) -> None:
    later = make_facts().model_copy(update={"started": 50.0})
    record(outputs, make_facts(exit_code=1), later)
    client, latest = Location.at(outputs).client, read_back(outputs)[CASE.id]
    assert latest.tags["verdict"] == "passed"
    assert "superseded" not in latest.tags
    experiment = Reader.at(outputs).find("latest").experiment_id
    (old,) = client.search_runs([experiment], "tags.superseded LIKE '%'")
    assert old.data.tags["superseded"] == latest.run_id
    assert old.data.tags["verdict"] == "crashed"


def test_a_check_that_breaks_or_lacks_a_threshold_hides_no_other(
    make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_facts: Facts, _context: Context) -> Finding | None:
        raise KeyError("loss")

    monkeypatch.setitem(CHECKS, "broken", broken)
    monkeypatch.setattr(thresholds, "table", lambda _: Table(thresholds={}))
    judgement = judge_module.judge(resumed(make_facts, 0.0), Context())
    found = {one.check: one for one in judgement.findings}
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert found["alive"].outcome is Outcome.PASS
    assert found["broken"].message == "the check itself failed: KeyError: 'loss'"
    assert "has no resume.loss.cpu.float32; add it" in found["resume"].message


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"sweep": "x"}, "no sweep x in sqlite"),
        ({"experiment": "weekly"}, "no experiment weekly in sqlite"),
    ],
)
def test_a_wrong_request_is_one_line(
    outputs: Path, arguments: dict[str, str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge_again(outputs, **arguments) == 2
    assert line in capsys.readouterr().err


def test_facts_are_read_from_the_store_and_not_from_the_disk(
    outputs: Path, make_facts: Make
) -> None:
    record(outputs, make_facts())
    facts_file.save(make_facts([Step(step=1, loss=1, grad_norm=1)]), outputs / SWEEP / CASE.id)
    assert judge_again(outputs) == 0


def test_judging_without_the_configuration_that_a_sweep_ran_with_is_told(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    result, long = sweep_folder(outputs, make_facts(), named(make_facts(), "long"))
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    writer.record(replace(result, command="python -m sweep --config-dir '/my conf' arch=llama"))
    writer.record(replace(long, command=f"python -m sweep 'a={'x' * 9000}'"))  # is cut there
    writer.settle()
    writer.finish([result, long], End())
    assert judge_again(outputs) == 0
    said = "judged without the thresholds and known failures of --config-dir /my conf\n"
    assert capsys.readouterr().err == said
    assert judge_main([f"outputs={outputs}", "--config-dir", str(outputs)]) == 0
    assert capsys.readouterr().err == ""


def test_a_lock_that_nobody_gives_back_is_one_line(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    record(outputs, make_facts())
    lock = FileLock(outputs / "mlflow.db.lock")
    monkeypatch.setattr("sweep.store.location.LOCK_SECONDS", 0.2)
    monkeypatch.setattr("sweep.judge.__main__._folder", lambda *_: lock.acquire() and outputs)
    try:
        assert judge_again(outputs) == 3
    finally:
        lock.release()
    assert "cannot take the verdicts: The file lock" in capsys.readouterr().err


def test_a_case_that_failed_and_cannot_run_any_more_stays_unavailable(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after rerun=failed where a package that it needs was removed meanwhile."""
    crashed = make_facts(exit_code=1).model_copy(update={"started": 50.0})
    (failed,) = record(outputs, crashed, began=10.0)
    assert read_back(outputs)[CASE.id].tags["verdict"] == "crashed"
    folder = failed.folder
    folder.rename(folder.parent / ".earlier")
    write_json(folder / "case.json", {"case": CASE.model_dump(), "unavailable": "needs a GPU"})
    cannot = report.Result(unavailable(CASE, "needs a GPU"), folder, "python -m sweep")
    for _ in range(2):
        (folder / "recorded.json").unlink(missing_ok=True)
        writer = Writer(Location.at(outputs), folder.parent)
        closing.close(writer, folder.parent, [cannot], End(), ConfDirs())
        assert read_back(outputs)[CASE.id].tags["verdict"] == "unavailable"
    assert len(runs_of(outputs)) == 2, "recording it again makes no third run"
    judge_again(outputs)
    assert "unavailable" in capsys.readouterr().out
    assert read_back(outputs)[CASE.id].tags["verdict"] == "unavailable"


def runs_of(outputs: Path) -> list[str]:
    client = Location.at(outputs).client
    found = client.search_runs(["0", "1"], f"tags.case_id = '{CASE.id}'")
    return [run.info.run_id for run in found]
