"""What is wrong with one case's files, or with a run in the store, is no other case's trouble."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep.case.folder import planned_in
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.files import inside, is_inside
from sweep.plan.earlier import Earlier
from sweep.session.driver import Session
from sweep.store import Reader
from tests.sweep.conftest import CASE
from tests.sweep.planning import composed
from tests.sweep.recording import DEAD, SWEEP, ended, judge_again, named, night, record, synced
from tests.sweep.sessions import Job, leave_facts

Make = Callable[..., Facts]


def fail_for(monkeypatch: pytest.MonkeyPatch, part: str, error: Exception) -> None:
    """Reading metrics in a folder with `part` in its name raises."""
    read = Path.read_text

    def refused(path: Path, **how: Any) -> str:
        if part in str(path) and path.name == "metrics.jsonl":
            raise error
        return read(path, **how)

    monkeypatch.setattr(Path, "read_text", refused)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), PermissionError(13, "no"),
                                   RuntimeError("damaged")])  # fmt: skip
def test_metrics_that_cannot_be_read_fail_their_case_and_no_other(
    planned: list[Planned], make_facts: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    session = Session.begin(planned, Machine(), live=False)
    fail_for(monkeypatch, "qwen3", error)

    def run() -> None:
        for index in (0, 1):
            session.submitted(index, Job())
            session.started(index)
        directory = session.folder / planned[1].case.id / "launches" / "1_train"
        directory.mkdir(parents=True)
        (directory / "metrics.jsonl").write_text("{}\n")
        session.tick()
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        session.ended(1, "")

    assert session.execute(run) == 1
    verdicts = {
        one.parent.name: json.loads(one.read_text())["verdict"]
        for one in session.folder.glob("*/findings.json")
    }
    assert verdicts == {"llama-single-base": "passed", "qwen3-single-base": "crashed"}
    facts = json.loads((session.folder / "qwen3-single-base" / "facts.json").read_text())
    (said,) = facts["launches"][0]["metrics"]["bad_lines"]
    assert said.startswith(f"metrics.jsonl cannot be read: {type(error).__name__}")


def test_a_case_whose_folder_is_gone_crashed(planned: list[Planned], make_facts: Make) -> None:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        for index in (0, 1):
            session.submitted(index, Job())
        (session.folder / planned[1].case.id / "case.json").unlink()
        (session.folder / planned[1].case.id).rmdir()
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        session.ended(1, "")

    assert session.execute(run) == 1
    facts = json.loads((session.folder / planned[1].case.id / "facts.json").read_text())
    assert "its files cannot be read: FileNotFoundError" in facts["error"]


@pytest.fixture
def two_ended(planned: list[Planned], make_facts: Make) -> Path:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        for index in (0, 1):
            session.submitted(index, Job())
            leave_facts(session, index, make_facts)
            session.ended(index, "")

    assert session.execute(run) == 0
    ended(session.folder)
    return session.folder


def test_a_damaged_result_is_run_again_when_its_sweep_is_resumed(two_ended: Path) -> None:
    (two_ended / "qwen3-single-base" / "facts.json").write_text("{")
    earlier = Earlier(two_ended)
    assert not earlier.is_to_run("llama-single-base")
    assert earlier.is_to_run("qwen3-single-base")
    (two_ended / "llama-single-base" / "findings.json").write_text("{")
    assert Earlier(two_ended, failed_only=True).is_to_run("llama-single-base")


def test_a_case_that_cannot_be_identified_is_left_out_of_what_is_resumed(
    two_ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (two_ended / "qwen3-single-base" / "case.json").write_text("{")
    found = Earlier(two_ended).narrowed({}, composed, Machine())
    assert [one.case.id for one in found] == ["llama-single-base"]
    assert [one.case.id for one in planned_in(two_ended)] == ["llama-single-base"]
    assert capsys.readouterr().err.count("left out: ") == 2
    (two_ended / "llama-single-base" / "case.json").unlink()
    with pytest.raises(RequestError, match=r"llama-single-base/case.json is gone"):
        Earlier(two_ended).narrowed({}, composed, Machine())


def test_a_result_of_a_newer_version_is_not_run_again(two_ended: Path) -> None:
    path = two_ended / "qwen3-single-base" / "facts.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(RequestError, match="update trainer-sweep"):
        Earlier(two_ended).is_to_run("qwen3-single-base")


def test_a_damaged_result_beside_a_resumed_part_is_told_from_the_store(
    two_ended: Path, planned: list[Planned], capsys: pytest.CaptureFixture[str]
) -> None:
    (two_ended / "qwen3-single-base" / "facts.json").write_text("{")
    session = Session.begin(planned[:1], Machine(), earlier=Earlier(two_ended), live=False)
    session._results.note_earlier([])
    damaged = session._results.results[1]
    assert damaged.judgement.verdict.value == "inconclusive"
    assert "facts.json" in damaged.message
    assert session.execute(lambda: None) == 0, "MLflow has its facts"
    assert "2 passed" in capsys.readouterr().out


def test_one_damaged_result_does_not_keep_the_others_from_being_recorded(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.sweep.recording import sweep_folder

    sweep_folder(outputs, make_facts(), named(make_facts(), "broken"), named(make_facts(), "lost"))
    ended(outputs / SWEEP, DEAD)
    (outputs / SWEEP / "broken" / "facts.json").write_text("{")
    (outputs / SWEEP / "lost" / "case.json").write_text("{")
    assert synced(outputs) == 0
    reader = Reader.at(outputs)
    cases = {one.case_id: one.tags["verdict"] for one in reader.cases(reader.find(SWEEP))}
    assert cases[CASE.id] == "passed"
    assert "lost is left out: " in capsys.readouterr().err


def damage(outputs: Path, case_id: str, content: bytes) -> None:
    """The facts of a case as the store has them."""
    reader = Reader.at(outputs)
    (case,) = (one for one in reader.cases(reader.find("latest")) if one.case_id == case_id)
    (path,) = (outputs / "artifacts").glob(f"**/{case.run_id}/artifacts/facts.json")
    path.write_bytes(content)


@pytest.mark.parametrize("content", [b'{"sweep_id": 1}', b"{", b"\xff\xfe"])
def test_facts_damaged_in_the_store_are_inconclusive_for_their_case_alone(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    record(outputs, make_facts(), named(make_facts(), "broken"))
    damage(outputs, "broken", content)
    assert judge_again(outputs) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "1 passed, 1 inconclusive" in said
    assert "facts.json of run" in said
    assert "cannot be read: " in said


def foreign_run(outputs: Path, **tags: str) -> str:
    client = Reader.at(outputs).location.client
    experiment = client.get_experiment_by_name("nightly")
    run = client.create_run(experiment.experiment_id, int(9e12), tags)
    return str(run.info.run_id)


def test_a_foreign_run_in_the_store_is_left_out_with_a_note(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    night(outputs, 1, make_facts())
    sweep_id = night(outputs, 2, make_facts())
    foreign = [
        foreign_run(outputs, kind="sweep"),
        foreign_run(outputs, kind="case", sweep_id=sweep_id),
        foreign_run(outputs, verdict="passed"),
    ]
    (outputs / sweep_id / "sweep.json").unlink()
    assert judge_again(outputs, experiment="nightly") == 0
    said = capsys.readouterr()
    assert "1 passed" in said.out
    for run_id in foreign[:2]:
        assert said.err.count(f"run {run_id}") == 1, said.err
    from sweep.compare.__main__ import main

    assert main([f"outputs={outputs}", "experiment=nightly"]) == 0


@pytest.mark.parametrize("name", ["../../evil", "/evil", "..", ".", "", "a/../../b", "a\0b", "a\n"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="names nothing inside"):
        inside(tmp_path, name)
    assert not is_inside(tmp_path, name)


def test_a_name_in_the_folder_is_its_path(tmp_path: Path) -> None:
    assert inside(tmp_path, "20260101-000000-ab") == tmp_path / "20260101-000000-ab"


def files_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_judging_writes_nothing_where_a_tag_of_the_store_says(
    tmp_path: Path, outputs: Path, make_facts: Make
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    sweep_id = night(outputs, 1, make_facts())
    reader = Reader.at(outputs)
    client = reader.location.client
    sweep = reader.find("latest")
    (case,) = reader.cases(sweep)
    client.set_tag(case.run_id, "folder", str(elsewhere))
    for path in sorted((outputs / sweep_id).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert judge_again(outputs) == 0
    assert files_in(elsewhere) == set()

    client.set_tag(sweep.run_id, "sweep_id", "../../evil")
    assert judge_again(outputs) == 2
    assert judge_again(outputs, sweep="../../evil") == 2
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path.parent / "evil").exists()


def test_a_plan_from_the_store_names_no_folder_elsewhere(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_id = night(outputs, 1, make_facts())
    plan = outputs / sweep_id / "sweep.json"
    (kept,) = (outputs / "artifacts").glob("**/sweep.json")
    value = {**json.loads(plan.read_text()), "cases": [CASE.id, "../../../evil"]}
    kept.write_text(json.dumps(value))
    plan.write_text(json.dumps(value))
    assert judge_again(outputs) == 2
    assert "'../../../evil' names nothing inside" in capsys.readouterr().err


def test_a_link_that_a_trainer_made_is_not_followed_into_the_store(
    tmp_path: Path, outputs: Path, make_facts: Make
) -> None:
    from sweep.store import End, Location, Writer
    from tests.sweep.recording import sweep_folder

    secret = tmp_path / "secret"
    secret.write_text("a key")
    (result,) = sweep_folder(outputs, make_facts())
    directory = result.folder / "launches" / "1_train"
    directory.mkdir(parents=True)
    (directory / "config.yaml").symlink_to(secret)
    (directory / "launcher.log").write_text("said")
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    writer.record(result)
    writer.settle()
    writer.finish([result], End())
    kept = {path.name for path in (outputs / "artifacts").rglob("*")}
    assert "launcher.log" in kept
    assert "config.yaml" not in kept


def test_a_log_of_any_size_is_kept_in_the_store_by_its_head_and_its_tail(
    outputs: Path, make_facts: Make
) -> None:
    from sweep.store import End, Location, Writer
    from tests.sweep.recording import sweep_folder

    (result,) = sweep_folder(outputs, make_facts())
    directory = result.folder / "launches" / "1_train"
    directory.mkdir(parents=True)
    with (directory / "launcher.log").open("wb") as log:
        log.write(b"first line\n" + b"x" * 5_000_000 + b"\nlast line\n")
    (directory / "config.json").write_text("{}")
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    writer.record(result)
    writer.settle()
    writer.finish([result], End())
    (kept,) = (outputs / "artifacts").rglob("launcher.log")
    text = kept.read_text()
    assert len(text) < 1_001_000
    assert text.startswith("first line\nxxx")
    assert text.endswith("xxx\nlast line\n")
    left_out = 5_000_022 - 1_000_000
    assert f"[{left_out} bytes left out: {directory / 'launcher.log'}]" in text
    assert (directory / "launcher.log").stat().st_size == 5_000_022
