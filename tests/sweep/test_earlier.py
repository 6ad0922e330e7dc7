"""Going on with a sweep that has ended, however."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case import folder as sweep_folder
from sweep.case.folder import ASIDE
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.plan import plan, suite
from sweep.plan.earlier import Earlier
from sweep.plan.request import Request
from sweep.session.aside import set_aside
from sweep.session.driver import Session
from sweep.store import Reader
from tests.sweep.planning import COMMAND, composed
from tests.sweep.sessions import Job, leave_facts


def test_a_sweep_that_still_runs_is_not_gone_on_with(planned: list[Planned], outputs: Path) -> None:
    session = Session.begin(planned, Machine(), live=False)
    with pytest.raises(RequestError, match="still runs"):
        Earlier.asked_for(outputs, "latest", None)
    plan_file = session.folder / "sweep.json"
    host = sweep_folder.this_driver().partition(":")[0]
    dead = {**json.loads(plan_file.read_text()), "driver": f"{host}:{2**22 + 1}:1.0"}
    plan_file.write_text(json.dumps(dead))
    earlier = Earlier.asked_for(outputs, session.folder.name, None)
    assert earlier is not None
    assert earlier.is_to_run(planned[0].case.id)


def test_only_failed_can_be_run_again(outputs: Path) -> None:
    with pytest.raises(RequestError, match="say rerun=failed"):
        Earlier.asked_for(outputs, None, "all")


def test_an_interrupted_case_has_no_result(
    planned: list[Planned], make_facts: Callable[..., Facts]
) -> None:
    session = Session.begin(planned, Machine(), live=False)
    case = planned[0].case
    facts = make_facts().model_copy(update={"case": case, "interrupted": True})
    facts_file.save(facts, session.folder / case.id)
    earlier = Earlier(session.folder)
    assert earlier.is_to_run(case.id)
    assert not Earlier(session.folder, failed_only=True).is_to_run(case.id)


@pytest.fixture
def ended(planned: list[Planned], make_facts: Callable[..., Facts]) -> Path:
    """The folder of a sweep whose llama passed and whose qwen3 crashed."""
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        for index in (0, 1):
            session.submitted(index, Job())
            leave_facts(session, index, make_facts, exit_code=index)
            session.ended(index, "")

    assert session.execute(run) == 1
    return session.folder


def ids(planned: Sequence[Planned]) -> list[str]:
    return [one.case.id for one in planned]


def test_choices_narrow_its_cases_as_they_narrow_a_suite(ended: Path) -> None:
    def narrowed(**chosen: list[str]) -> list[Planned]:
        return Earlier(ended).narrowed(chosen, composed, Machine())

    assert ids(narrowed()) == ["llama-single-base", "qwen3-single-base"]
    assert ids(narrowed(arch=["qwen3"])) == ["qwen3-single-base"]
    assert ids(narrowed(arch=["qwen3", "gpt_oss"], feature=["base"])) == ["qwen3-single-base"]
    assert [one.case.steps for one in narrowed(steps=["3"])] == [3, 3]
    with pytest.raises(RequestError, match=r"nothing in sweep .* matches feature=resume"):
        narrowed(feature=["resume"])
    with pytest.raises(RequestError, match="seed: a resumed sweep keeps its cases; give one value"):
        narrowed(seed=["1", "2"])


def test_the_line_that_a_sweep_was_started_with_goes_on_with_it(
    outputs: Path,
) -> None:
    words = {"arch": ["llama"], "layout": ["single"], "seed": ["0", "1"],
             "outputs": [str(outputs)]}  # fmt: skip
    combinations = [[*one, *COMMAND] for one in suite.combinations(words, [])]
    cases = plan(combinations, composed, Machine(), {"": {"seed"}})
    earlier = Earlier(Session.begin(cases, Machine(), live=False).folder)
    assert ids(earlier.narrowed(words, composed, Machine())) == ids(cases)
    assert ids(earlier.narrowed({**words, "seed": ["1"]}, composed, Machine())) == ids(cases[1:])


def test_a_layout_of_it_is_chosen_by_the_degrees_in_its_case_ids(outputs: Path) -> None:
    words = {"arch": ["llama"], "layout": ["fsdp2_ep2"], "outputs": [str(outputs)]}
    combinations = [[*one, *COMMAND] for one in suite.combinations(words, [])]
    cases = plan(combinations, composed, Machine())
    earlier = Earlier(Session.begin(cases, Machine(), live=False).folder)
    found = earlier.narrowed({"layout": ["fsdp2_ep1"]}, composed, Machine())
    assert ids(found) == ids(cases) == ["llama-fsdp2_ep1-base"]


def test_another_suite_or_shard_is_no_way_to_go_on(ended: Path, planned: list[Planned]) -> None:
    others = plan([["arch=gpt_oss", "layout=single", *COMMAND]], composed, Machine())
    assert ids(Earlier(ended).its_own(planned[:1])) == ["llama-single-base"]
    with pytest.raises(RequestError, match="has no case gpt_oss-single-base, and 0 others: leave"):
        Earlier(ended).its_own([*planned, *others])
    with pytest.raises(RequestError, match=r"shard=1/2: sweep .* is not that shard"):
        Earlier(ended).narrowed({}, composed, Machine(), (1, 2))
    plan_file = ended / "sweep.json"
    of_a_shard = {**json.loads(plan_file.read_text()), "argv": ["-m", "shard=1/2"]}
    plan_file.write_text(json.dumps(of_a_shard))
    assert Earlier(ended).its_own([*planned, *others], (1, 2)) == planned


def test_a_part_of_a_sweep_that_goes_on_is_reported_with_the_rest(
    ended: Path, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = Earlier(ended, failed_only=True)
    part = earlier.narrowed({"arch": ["llama"]}, composed, Machine())
    session = Session.begin(part, Machine(), earlier=earlier, live=False)
    assert session.execute(lambda: pytest.fail("nothing of it failed")) == 1
    assert "1 passed, 1 crashed" in capsys.readouterr().out
    assert "1 passed, 1 crashed" in (ended / "summary.md").read_text()
    assert Reader.at(outputs).find(ended.name).status == "FAILED"


def test_nothing_left_to_run_is_a_plan_as_well(
    ended: Path, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request("adhoc", [], None, Earlier(ended), True, False, outputs)
    planned = request.cases([], composed, Machine())
    request.show(planned, lambda _cases: (0.0, 0))
    assert f"0 cases of sweep {ended.name} are to run" in capsys.readouterr().out


def test_a_case_set_aside_as_the_sweep_was_killed_is_gone_on_with(ended: Path) -> None:
    (ended / "qwen3-single-base" / "launches" / "1_train").mkdir(parents=True)
    before = Earlier(ended).narrowed({}, composed, Machine())
    aside = ended / ASIDE / "qwen3-single-base"
    aside.mkdir(parents=True)
    (ended / "qwen3-single-base").rename(aside / "1")
    earlier = Earlier(ended)
    assert earlier.narrowed({}, composed, Machine()) == before
    assert earlier.is_to_run("qwen3-single-base")
    set_aside(ended, before[1])
    assert case_file.read(ended / "qwen3-single-base").planned == before[1]
