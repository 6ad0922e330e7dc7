"""What is read back from MLflow, and what a case is compared with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.case.identity import Identity
from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts, Step
from sweep.store import Location, Reader
from tests.sweep.conftest import CASE
from tests.sweep.recording import night

Make = Callable[..., Facts]


def of(facts: Facts, **labels: object) -> Facts:
    return facts.model_copy(update={"case": CASE.model_copy(update=labels)})


def test_facts_come_back_as_they_were_whatever_is_in_them(outputs: Path, make_facts: Make) -> None:
    odd = [Step(step=1, loss=math.nan, grad_norm=math.inf, lr=-math.inf, counters={"[x] é": 1})]
    facts = make_facts(odd, exit_code=1, failure="é \x1b[31m" + "x" * 100_000)
    night(outputs, 1, facts)
    reader = Reader.at(outputs)
    sweep = reader.find("latest")
    assert (sweep.sweep_id, sweep.experiment) == ("20260101-000000", "nightly")
    (case,) = reader.cases(sweep)
    assert case.facts is not None
    assert json.dumps(case.facts.launches[0].model_dump()) == json.dumps(
        facts.launches[0].model_dump()
    )
    assert case.tags["verdict"] == "crashed"
    assert (case.case_id, case.status, case.params["dtype"]) == (CASE.id, "FAILED", "float32")


def test_a_sweep_is_found_by_id_by_experiment_and_as_the_latest(
    outputs: Path, make_facts: Make
) -> None:
    first, second = night(outputs, 1, make_facts()), night(outputs, 2, make_facts())
    other = night(outputs, 3, make_facts(), experiment="adhoc")
    reader = Reader.at(outputs)
    assert reader.find("latest").sweep_id == other
    assert reader.find("latest", "nightly").sweep_id == second
    assert reader.find(first).sweep_id == first
    with pytest.raises(RequestError, match=f"no sweep x in sqlite.*; the last ones: {other}, "):
        reader.find("x")
    with pytest.raises(RequestError, match=r"no experiment weekly in .*adhoc, nightly"):
        reader.find("latest", "weekly")
    with pytest.raises(RequestError, match="a quote"):
        reader.find("x' or 'y")


def test_of_a_case_that_ran_again_the_latest_run_counts(outputs: Path, make_facts: Make) -> None:
    frozen = [Step(step=n, loss=1.0, grad_norm=1.0) for n in range(1, 6)]
    night(outputs, 1, make_facts(frozen), of(make_facts(), id="other"), make_facts())
    reader = Reader.at(outputs)
    cases = reader.cases(reader.find("latest"))
    assert [case.case_id for case in cases] == ["other", CASE.id]
    assert cases[1].tags["verdict"] == "passed"


@pytest.mark.parametrize("nights", [0, 9])
def test_the_last_good_run_is_the_newest_of_the_same_case_that_passed(
    outputs: Path, make_facts: Make, nights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of the last nights are looked at in one query."""
    monkeypatch.setattr("sweep.store.reader.NIGHTS", nights)

    def good(loss: float) -> Facts:
        return make_facts(
            [Step(step=n, loss=loss - n / 10, grad_norm=1.0, params_moved=1.0) for n in range(1, 6)]
        )

    reader = Reader.at(outputs)
    night(outputs, 1, good(7.0))
    night(outputs, 2, good(6.0))
    night(outputs, 3, make_facts(exit_code=1))
    night(outputs, 4, of(good(5.0), device="cuda"), of(good(4.0), dtype="bfloat16"))
    night(outputs, 5, good(3.0), experiment="adhoc")
    night(outputs, 6, good(2.0), of(good(2.0), id="new"))
    night(outputs, 7, good(1.0))
    sweep = reader.find("20260106-000000")
    assert {case: facts.steps[0].loss for case, facts in reader.last_good(sweep).items()} == {
        CASE.id: pytest.approx(5.9)
    }


def test_the_last_good_run_has_the_same_settings_if_there_is_one(
    outputs: Path, make_facts: Make
) -> None:
    def with_lr(lr: float) -> Facts:
        return make_facts().model_copy(update={"identity": Identity(settings={"optim.lr": lr})})

    reader = Reader.at(outputs)
    first = night(outputs, 1, with_lr(1e-4))
    night(outputs, 2, with_lr(1e-3))
    night(outputs, 3, with_lr(1e-4))
    night(outputs, 4, with_lr(1e-2))

    def last_good(day: int) -> str:
        return reader.last_good(reader.find(f"2026010{day}-000000"))[CASE.id].sweep_id

    assert last_good(3) == first
    assert last_good(2) == first, "of other settings, so that drift says which"
    assert last_good(4) == "20260103-000000", "likewise, the newest"


def test_facts_of_a_newer_schema_in_the_store_are_refused_in_one_line(
    outputs: Path, make_facts: Make
) -> None:
    night(outputs, 1, make_facts())
    reader = Reader.at(outputs)
    (stored,) = outputs.rglob("artifacts/facts.json")
    stored.write_text(stored.read_text().replace('"schema_version": 2', '"schema_version": 9'))
    with pytest.raises(RequestError, match=r"read facts.json of .*its schema 9 is newer than 2"):
        reader.cases(reader.find("latest"))


def test_the_pinned_sweep_is_a_baseline_of_its_own_experiment(
    outputs: Path, make_facts: Make
) -> None:
    first, second = night(outputs, 1, make_facts()), night(outputs, 2, make_facts())
    other = night(outputs, 3, make_facts(), experiment="adhoc")
    reader = Reader.at(outputs)
    assert reader.pinned(reader.find(second)) == {}
    reader.location.client.set_tag(reader.find(first).run_id, "baseline", "pinned")
    assert {case: facts.sweep_id for case, facts in reader.pinned(reader.find(second)).items()} == {
        CASE.id: first
    }
    assert reader.pinned(reader.find(first)) == {}  # nothing is compared with itself
    assert reader.pinned(reader.find(other)) == {}


def test_a_store_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="nothing is recorded yet in sqlite"):
        Reader.at(tmp_path).find("latest")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(MachineryError, match=r"MLflow .*:9. cannot list its experiments"):
        Reader.at(tmp_path).find("latest")
    with pytest.raises(MachineryError, match="cannot search runs"):
        Reader(Location("http://127.0.0.1:9"))._search(["1"], "")
