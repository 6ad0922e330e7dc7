"""Cases that run once more, and nights that stop early since everything fails alike."""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sweep import facts as facts_file
from sweep.case.folder import ASIDE, PLAN
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.checks import Context
from sweep.compare.rows import is_good
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.history import __main__ as history
from sweep.judge import Verdict, judge
from sweep.plan.earlier import Earlier
from sweep.report.result import exit_code
from sweep.session.alike import Alike, EnoughError, cause_of
from sweep.session.driver import Session
from sweep.store import Reader
from tests.sweep.commands import DUMMY_TRAINER, TRAINER, sweep
from tests.sweep.recording import ended, judge_again, synced
from tests.sweep.report.conftest import MakeResult, make_result
from tests.sweep.sessions import Job

__all__ = ["make_result"]  # a fixture
Make = Callable[..., Facts]
CLOCK = itertools.count(100.0)
BROKEN = {"exit_code": 1, "failed_rank": 0, "failure": "OOM"}


def asking(planned: list[Planned], **launch: int) -> list[Planned]:
    return [
        replace(
            case, settings=replace(case.settings, launch=replace(case.settings.launch, **launch))
        )
        for case in planned
    ]


class Night:
    """Runs a session whose jobs end as `ends` says, attempt by attempt."""

    def __init__(self, session: Session, make: Make, ends: dict[str, list[dict]]) -> None:
        self.session, self._make, self._ends = session, make, ends
        self.ran: list[str] = []

    def run(self) -> None:
        for index in range(len(self.session.runnable)):
            self._job(index)

    def _job(self, index: int) -> None:
        case = self.session.runnable[index].case
        settings = self.session.settings_of(index)
        self.session.submitted(index, Job())
        self.session.started(index)
        self.ran.append(case.id)
        attempt = len(settings.attempts)
        launch = self._ends.get(case.arch, [{}])[attempt]
        facts = self._make(**launch).model_copy(
            update={
                "case": case,
                "sweep_id": self.session.folder.name,
                "attempts": settings.attempts,
                "started": next(CLOCK),
            }
        )
        case_dir = self.session.folder / case.id
        (case_dir / "launches" / "1_train").mkdir(parents=True)
        facts_file.save(facts, case_dir)
        self.session.ended(index, "")

    def execute(self) -> int:
        return self.session.execute(self.run, can_settle=True)


def verdicts(session: Session) -> dict[str, str]:
    reader = Reader.at(session.folder.parent)
    cases = reader.cases(reader.find(session.folder.name))
    return {case.tags["arch"]: case.tags["verdict"] for case in cases}


def test_a_case_that_passes_at_the_second_attempt_is_flaky_and_fails_the_sweep(
    planned: list[Planned], make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session.begin(asking(planned, retries=1), Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN, {}]})
    assert night.execute() == 1
    assert [case_id.split("-")[0] for case_id in night.ran] == ["llama", "qwen3", "llama"]
    assert verdicts(session) == {"llama": "flaky", "qwen3": "passed"}
    said = " ".join(capsys.readouterr().out.split())
    assert "1 flaky" in said
    assert "retries: passed only at attempt 2; earlier: crashed, exit: train: exit code 1" in said
    junit = ET.parse(session.folder / "junit.xml").getroot()
    assert (junit.get("failures"), junit.get("skipped")) == ("1", "0")
    # What there was before is kept, on disk and in MLflow, and is no result any more.
    first = session.folder / ASIDE / planned[0].case.id / "1"
    assert (first / "facts.json").is_file()
    client = Reader.at(session.folder.parent).location.client
    runs = client.search_runs(["1"], "tags.kind = 'case' and tags.arch = 'llama'")
    assert len(runs) == 2
    assert sum("superseded" in run.data.tags for run in runs) == 1
    # Judging again comes to the same.
    assert judge_again(session.folder.parent) == 1
    assert verdicts(session) == {"llama": "flaky", "qwen3": "passed"}


def test_a_case_that_fails_each_time_is_no_flaky_one(
    planned: list[Planned], make_facts: Make
) -> None:
    session = Session.begin(asking(planned, retries=2), Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN] * 3})
    assert night.execute() == 1
    assert len(night.ran) == 4
    assert verdicts(session) == {"llama": "crashed", "qwen3": "passed"}
    facts = facts_file.load(session.folder / planned[0].case.id)
    assert facts is not None
    assert len(facts.attempts) == 2
    assert "failed in each of 3 attempts" in (session.folder / "details.md").read_text()


def test_without_retries_nothing_runs_again(planned: list[Planned], make_facts: Make) -> None:
    session = Session.begin(planned, Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN, {}]})
    assert night.execute() == 1
    assert len(night.ran) == 2
    assert verdicts(session)["llama"] == "crashed"


def test_a_store_that_is_down_keeps_both_attempts_apart(
    planned: list[Planned], make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    session = Session.begin(asking(planned, retries=1), Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN, {}]})
    assert night.execute() == 1
    assert not list(session.folder.glob("**/recorded.json"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    ended(session.folder)
    assert synced(session.folder.parent) == 0
    assert verdicts(session)["llama"] == "flaky"


def test_an_attempt_that_is_cut_off_is_remembered_when_the_sweep_is_resumed(
    planned: list[Planned], make_facts: Make
) -> None:
    session = Session.begin(asking(planned, retries=1), Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN, {}]})
    first = night.run

    def stops() -> None:
        if night.ran:
            raise KeyboardInterrupt
        first()

    assert session.execute(stops) == 130
    earlier = Earlier(session.folder)
    again = Session.begin(planned, Machine(), earlier=earlier, live=False)
    rest = Night(again, make_facts, {"llama": [BROKEN, {}]})
    assert rest.execute() == 1
    assert len(rest.ran) == 1
    assert verdicts(again) == {"llama": "flaky", "qwen3": "passed"}


def test_what_is_asked_to_run_again_by_hand_begins_anew(
    planned: list[Planned], make_facts: Make
) -> None:
    session = Session.begin(asking(planned, retries=1), Machine(), live=False)
    assert Night(session, make_facts, {"llama": [BROKEN, {}]}).execute() == 1
    earlier = Earlier(session.folder, failed_only=True)
    again = Session.begin(planned, Machine(), earlier=earlier, live=False)
    assert Night(again, make_facts, {}).execute() == 0
    assert verdicts(again) == {"llama": "passed", "qwen3": "passed"}


@pytest.mark.parametrize("known", [False, True])
def test_flaky_is_never_good_whatever_is_known(
    make_facts: Make, known: bool, tmp_path: Path
) -> None:
    from sweep.files import ConfDirs

    facts = make_facts().model_copy(update={"attempts": ["crashed, exit: OOM"]})
    if known:  # the entry is to be deleted as well
        (tmp_path / "known_failures.yaml").write_text(
            "- {case: llama-cp4_ep1-base, check: alive, message: x, issue: 'https://x/1'}\n"
        )
    judgement = judge(facts, Context(conf=ConfDirs.having(str(tmp_path))))
    assert judgement.verdict is Verdict.FLAKY
    assert not judgement.verdict.good
    assert not judgement.verdict.ran_well
    assert judgement.worst is not None
    assert "passed" not in judgement.words


def test_flaky_is_a_regression_and_fails_the_sweep(make_result: MakeResult) -> None:
    flaky = make_result(verdict=Verdict.FLAKY, message="x")
    assert exit_code([flaky, make_result()], None) == 1
    from sweep.store import CaseRecord

    assert not is_good(CaseRecord("r", 0.0, "FAILED", {"verdict": "flaky"}, {}, {}, None))


def test_failures_are_alike_by_their_root_cause(make_result: MakeResult) -> None:
    def crashed(arch: str, rank: int, failure: str) -> str:
        return cause_of(
            make_result(
                arch,
                verdict=Verdict.CRASHED,
                message="",
                exit_code=1,
                failed_rank=rank,
                failure=failure,
            )
        )

    assert cause_of(make_result()) == ""
    one = make_result("llama", verdict=Verdict.FAILED, message="step 3: loss is 5.2 in cp4_ep1")
    two = make_result("qwen3", verdict=Verdict.FAILED, message="step 4: loss is 1e-3 in cp4_ep1")
    other = make_result(
        "qwen3", verdict=Verdict.FAILED, message="step 4: grad_norm is 1 in cp4_ep1"
    )
    assert cause_of(one) == cause_of(two) != cause_of(other)


def test_a_night_in_which_all_fails_alike_stops_and_says_what_was_spared(
    planned: list[Planned], make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session.begin(asking(planned, stop_after_alike=1, retries=1), Machine(), live=False)
    night = Night(session, make_facts, {"llama": [BROKEN] * 2})
    assert night.execute() == 1
    assert len(night.ran) == 1
    error = capsys.readouterr().err
    assert "1 of 2 cases were spared: a case failed: exit: train: exit code 1" in error
    plan = json.loads((session.folder / PLAN).read_text())
    assert plan["spared"].startswith("a case failed")
    junit = ET.parse(session.folder / "junit.xml").getroot()
    assert "spared: a case failed" in (junit.find(".//error").get("message") or "")
    assert "spared: a case failed" in (session.folder / "summary.md").read_text()
    assert "spared: a case failed" in (session.folder / "matrix.html").read_text()
    again = shlex.split(error.partition("to go on: ")[2].splitlines()[0])
    assert again[:4] == ["python", "-m", "sweep", "-m"]
    assert {f"resume_sweep={session.folder.name}", "launch.stop_after_alike=null"} <= set(again)


def test_fewer_failures_or_other_ones_stop_nothing(make_result: MakeResult) -> None:
    def failed(message: str) -> object:
        return make_result(verdict=Verdict.FAILED, message=message)

    alike = Alike(2)
    alike.count(failed("loss is off"))
    alike.count(failed("grad_norm is off"))
    alike.count(make_result())
    with pytest.raises(EnoughError, match="2 cases failed alike: parity: loss is off"):
        alike.count(failed("loss is off"))
    Alike(None).count(failed("loss is off"))


@pytest.mark.parametrize("word", ["launch.retries=-1", "launch.stop_after_alike=0"])
def test_a_number_that_makes_no_sense_is_refused(word: str) -> None:
    from sweep.plan import plan
    from tests.sweep.planning import COMMAND, composed

    with pytest.raises(RequestError, match=word.partition("=")[0]):
        plan([["arch=llama", "layout=single", *COMMAND, word]], composed, Machine())


def dummies(outputs: Path, *words: str, **behaviours: str) -> subprocess.CompletedProcess[str]:
    return sweep(
        "-m",
        f"arch={','.join(behaviours)}",
        "layout=single",
        *DUMMY_TRAINER,
        TRAINER.replace("{behaviour}", "{arch}"),
        f"outputs={outputs}",
        f"+trainer.env.MARK={outputs}/mark",
        *words,
        BEHAVIOURS=json.dumps(behaviours),
    )


@pytest.mark.slow
def test_a_trainer_that_fails_once_is_flaky_and_its_nights_say_so(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = dummies(outputs, "launch.retries=1", llama="fails_once", qwen3="ok")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 flaky, 1 passed" in done.stdout
    (folder,) = (path.parent for path in outputs.glob("*/sweep.json"))
    assert "flaky" in (folder / "summary.md").read_text()
    logs = folder.glob(f"{ASIDE}/llama-single-base/1/launches/1_train/launcher.log")
    assert [log.is_file() for log in logs] == [True]
    assert history.main([f"outputs={outputs}", "json=-"]) == 0
    cases = {case["case_id"]: case for case in json.loads(capsys.readouterr().out)["cases"]}
    assert cases["llama-single-base"]["flakiness"] == {"changes": 1, "pairs": 1}
    assert cases["llama-single-base"]["pass_rate"] == 0
    assert cases["qwen3-single-base"]["pass_rate"] == 1


@pytest.mark.slow
def test_what_was_spared_runs_with_the_command_that_is_printed(outputs: Path) -> None:
    broken = dict.fromkeys(("llama", "qwen3", "qwen3_moe", "gpt_oss"), "exit_42")
    done = dummies(outputs, "launch.stop_after_alike=2", "launch.slots=1", **broken)
    assert done.returncode == 1, done.stdout + done.stderr
    said = "2 of 4 cases were spared: 2 cases failed alike: exit: train: exit code 42"
    assert said in done.stderr
    words = shlex.split(done.stderr.partition("to go on: ")[2].splitlines()[0])
    again = sweep(*words[3:], BEHAVIOURS=json.dumps(dict.fromkeys(broken, "ok")))
    assert again.returncode == 1
    assert "2 crashed, 2 passed" in again.stdout
