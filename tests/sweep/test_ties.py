"""A tie is settled by a replay of the reference's choices; what is left then is a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep import facts as facts_file
from sweep import trainers
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.checks import Context, Finding, Outcome, parity, ties
from sweep.facts import Facts, LaunchFacts, Metrics, Step, asked_of
from sweep.plan import plan
from sweep.schema import ReplayConf
from sweep.session.driver import Session
from sweep.store import Location, Reader
from sweep.trainers.sft import SftConf
from tests.sweep.adapters import case_for
from tests.sweep.conftest import CASE
from tests.sweep.planning import COMMAND, composed
from tests.sweep.sessions import Job

RANKS = {"single": 1, "cp2_ep2": 2, "cp4_ep4": 4}
TIE = 3  # the step from which on a choice falls differently
PLACES = [1.0] * 256


def step(number: int, flipped: bool = False, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "step": number, "loss": 8.0 - number + 1e-5 * flipped, "grad_norm": 2.0,
        "grad_norm_groups": {"router": 0.1}, "global_batch_digest": f"batch {number}",
        "params_moved": 1.0, "counters": {"choices_fingerprint": [256.0 + number + flipped]},
        "choices_by_place": [1.0 + flipped, 1.0 + number, *PLACES[2:]],
    }  # fmt: skip
    return Step.model_validate(values | changes)


def launch(steps: Sequence[Step], number: int = 1, replays: str = "") -> LaunchFacts:
    name = "replay" if replays else "train"
    return LaunchFacts(
        name=name, replays=replays, keeps_choices=not replays, argv=[], exit_code=0,
        directory=f"launches/{number}_{name}", first_step=1, last_step=5, limit_seconds=9.0,
        started=float(number), seconds=1.0, metrics=Metrics(steps=list(steps)),
    )  # fmt: skip


def case(layout: str, *launches: LaunchFacts) -> Facts:
    labels = {"id": f"qwen3_moe-{layout}-none", "arch": "qwen3_moe", "layout": layout,
              "feature": "none", "world_size": RANKS[layout], "steps": 5}  # fmt: skip
    return Facts(
        sweep_id="s", case=CASE.model_copy(update=labels), started=0.0, seconds=1.0,
        environment={}, asked={"cp": RANKS[layout], "ep": RANKS[layout]}, launches=list(launches),
    )  # fmt: skip


def run(tie: int | None = None, **changes: Any) -> list[Step]:
    """Five steps, with another choice from a step on; `changes` are those of the fourth."""
    return [step(n, tie is not None and n >= tie, **(changes if n == 4 else {}))
            for n in range(1, 6)]  # fmt: skip


REFERENCE = case("single", launch(run()))


def replayed(steps: Sequence[Step], **changes: Any) -> Facts:
    first = launch(run(TIE, **changes))
    return case("cp4_ep4", first, launch(steps, 2, REFERENCE.case.id))


def together(*cases: Facts) -> Context:
    return Context({one.case.id: one for one in cases})


def checked(facts: Facts, *others: Facts) -> Finding:
    found = parity.check(facts, together(facts, REFERENCE, *others))
    assert found is not None
    return found


def test_a_case_that_ties_is_to_replay_the_plainest_ones_choices() -> None:
    tied = case("cp4_ep4", launch(run(TIE)))
    found = ties.unsettled(tied, together(tied, REFERENCE, case("cp2_ep2", launch(run()))))
    assert found is not None
    assert found.reference is REFERENCE
    assert found.below == pytest.approx(1e-5)


@pytest.mark.parametrize(
    "facts",
    [
        case("cp4_ep4", launch(run())),
        replayed(run()),
        case("cp4_ep4", launch(run(TIE)).model_copy(update={"keeps_choices": False})),
        case("cp4_ep4", launch([step(n, n > 2, grad_norm=2.0 + n) for n in range(1, 6)])),
    ],
    ids=["no tie", "settled", "keeps no choices", "wrong before"],
)
def test_nothing_else_is_started_once_more(facts: Facts) -> None:
    assert ties.unsettled(facts, together(facts, REFERENCE)) is None
    assert ties.unsettled(REFERENCE, together(facts, REFERENCE)) is None


def test_a_tie_that_nobody_settled_is_no_pass() -> None:
    found = checked(case("cp4_ep4", launch(run(TIE))))
    assert (found.outcome, found.advisory) == (Outcome.INCONCLUSIVE, False)
    assert "from step 3 on" in found.message
    assert "no replay of the choices" in found.message


def test_a_settled_tie_passes_and_every_step_was_compared() -> None:
    found = checked(replayed(run()))
    assert found.outcome is Outcome.PASS
    assert found.message.endswith("with the same choices where scores tie: equal at all steps")
    at_the_first_step = case("cp4_ep4", launch(run(1)), launch(run(), 2, REFERENCE.case.id))
    assert checked(at_the_first_step).outcome is Outcome.PASS


def test_a_fault_after_a_tie_fails() -> None:
    """As large as what a tie explains: it was excused before."""
    wrong = {"grad_norm": 2.001}
    assert checked(replayed(run(), **wrong)).outcome is Outcome.PASS, "not in the replay: chance"
    found = checked(replayed(run(None, **wrong), **wrong))
    assert found.outcome is Outcome.FAIL
    assert "step 4: grad_norm is 2.001" in found.message


def test_a_choice_that_falls_differently_though_no_scores_tie_fails() -> None:
    found = checked(replayed(run(4)))
    assert found.outcome is Outcome.FAIL
    assert "step 4: it is no tie: with the choices of qwen3_moe-single-none replayed" in (
        found.message
    )
    assert "(scores within 1e-05), tokens at 1 places still have others" in found.message


def test_cases_that_both_tied_with_the_reference_are_compared_by_their_replays() -> None:
    plainer = case("cp2_ep2", launch(run(2)), launch(run(), 2, REFERENCE.case.id))
    assert checked(replayed(run()), plainer).outcome is Outcome.PASS
    wrong = {"loss": 4.1}
    found = checked(replayed(run(None, **wrong)), plainer)
    assert "step 4: loss is 4.1" in found.message


def test_a_replay_is_no_resume_and_no_repeat() -> None:
    facts = replayed(run())
    assert [one.name for one in facts.own_launches] == ["train"]
    assert [one.name for one in facts.runs_of(facts.launches[0])] == ["train"]


def test_the_adapter_asks_for_the_choices_of_the_other_cases_whole_run(tmp_path: Path) -> None:
    settings = case_for(SftConf(), world=4, cp=4, ep=4)
    adapter = trainers.of(settings)
    whole = adapter.launches(settings)[0]
    directory = tmp_path / "qwen3_moe-cp4_ep4-none" / "launches" / "2_replay"
    config: Callable[..., dict[str, Any]] = adapter.config  # type: ignore[attr-defined]
    assert config(settings, whole, directory, None)["choices"] == {"keep": True}
    settings.replay = ReplayConf("qwen3_moe-single-none", 1e-5)
    folder = tmp_path / "qwen3_moe-single-none" / "launches" / "1_train" / "choices"
    assert config(settings, whole, directory, None)["choices"] == {
        "replay": str(folder), "below": 1e-5
    }  # fmt: skip


@pytest.mark.parametrize("settles", [True, False])
def test_a_sweep_starts_what_tied_once_more_and_records_that(
    outputs: Path, settles: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    layouts = [[f"arch=llama layout={one} feature=none", f"outputs={outputs}", *COMMAND]
               for one in ("single", "cp2_ep1")]  # fmt: skip
    cases = plan([" ".join(words).split() for words in layouts], composed, Machine())
    session = Session.begin(cases, Machine(), live=False)
    started: list[tuple[str, str | None]] = []

    def job() -> None:
        for index, one in enumerate(session.runnable):
            settings = session.settings_of(index)
            started.append((one.case.id, settings.replay.case_id))
            session.submitted(index, Job())
            session.started(index)
            leave(session.folder, one, settings.replay.case_id)
            session.ended(index, "")

    code = session.execute(job, can_settle=settles)
    once = [("llama-single-none", None), ("llama-cp2_ep1-none", None)]
    assert started == [*once, *([("llama-cp2_ep1-none", "llama-single-none")] if settles else [])]
    assert code == (0 if settles else 1), capsys.readouterr().out
    reader = Reader(Location.at(outputs))
    tied = next(one for one in reader.cases(reader.find(session.folder.name, "adhoc"))
                if one.case_id == "llama-cp2_ep1-none")  # fmt: skip
    assert tied.facts is not None
    assert [one.name for one in tied.facts.launches] == ["train", "replay"][: 1 + settles]
    assert tied.tags["verdict"] == ("passed" if settles else "inconclusive")


def leave(folder: Path, one: Planned, replays: str | None) -> None:
    """What a case's job leaves: a tie with the one in a single process, or a replay of it."""
    if replays is not None:
        facts = facts_file.load(folder / one.case.id)
        assert facts is not None
        facts.launches.append(launch(run(), 2, replays))
    else:
        tie = TIE if one.case.world_size > 1 else None
        first = launch(run(tie))
        facts = case("single", first).model_copy(
            update={"case": one.case, "asked": asked_of(one.settings)}
        )
    facts_file.save(facts, folder / one.case.id)
