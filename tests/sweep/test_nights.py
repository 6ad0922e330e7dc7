"""What a sweep's own run has: figures that MLflow charts, and the summary that history reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.facts import Facts
from sweep.judge import Verdict
from sweep.judge.__main__ import main
from sweep.store import Location, Reader, entries, nights
from sweep.store.nights import CaseNight
from tests.sweep.recording import SWEEP, judge_again, named, night, record

Make = Callable[..., Facts]


def sweep_run(outputs: Path, sweep_id: str = SWEEP) -> Any:
    client = Location.at(outputs).client
    (run,) = client.search_runs(["1"], f"tags.kind = 'sweep' and tags.sweep_id = '{sweep_id}'")
    return run


def test_a_sweeps_run_has_what_charts_a_trend(outputs: Path, make_facts: Make) -> None:
    record(outputs, make_facts(), named(make_facts(exit_code=1), "broken"))
    figures = sweep_run(outputs).data.metrics
    assert (figures["cases/passed"], figures["cases/crashed"]) == (1, 1)
    counts = {key for key in figures if key.startswith("cases/")}
    assert counts == {f"cases/{verdict.value}" for verdict in Verdict} | {"cases/not_run"}
    assert figures["launches/total"] == 2
    assert figures["time/cases_seconds"] == 20
    assert figures["time/total_seconds"] == 10  # they ran side by side


def test_a_sweep_that_is_judged_again_has_its_new_figures(
    outputs: Path, make_facts: Make, tmp_path: Path
) -> None:
    record(outputs, make_facts(), named(make_facts(exit_code=1), "llama-single-none"))
    own = tmp_path / "own"
    own.mkdir()
    (own / "known_failures.yaml").write_text(
        "- {case: llama-single-none, check: exit, message: exit code 1, issue: 'https://x/1'}\n"
    )
    main([f"outputs={outputs}", "--config-dir", str(own)])
    run = sweep_run(outputs)
    assert (run.data.metrics["cases/crashed"], run.data.metrics["cases/known"]) == (0, 1)
    cases, _ = nights.unpacked(run.data.tags) or ({}, [])
    assert cases["llama-single-none"].verdict == "known"


def test_the_worst_margin_of_each_check_is_a_figure_of_case_and_sweep(
    outputs: Path, make_facts: Make
) -> None:
    night(outputs, 1, make_facts())
    later = night(outputs, 2, make_facts())
    judge_again(outputs, sweep=later)
    reader = Reader.at(outputs)
    (case,) = reader.cases(reader.find(later))
    assert case.metrics["margin/drift"] == 0.0
    assert sweep_run(outputs, later).data.metrics["margin/drift"] == 0.0


def test_runs_say_when_they_began_who_started_them_and_how(outputs: Path, make_facts: Make) -> None:
    record(outputs, make_facts(), sweep_id="20260102-031500-aaaa")
    record(outputs, make_facts(), sweep_id="20260102-171500-bbbb")
    first = sweep_run(outputs, "20260102-031500-aaaa")
    second = sweep_run(outputs, "20260102-171500-bbbb")
    assert (first.info.run_name, second.info.run_name) == ("01-02 03:15 adhoc", "01-02 17:15 adhoc")
    assert first.data.tags["mlflow.user"]
    assert first.data.tags["mlflow.source.name"].startswith("python -m sweep")
    assert first.data.tags["mlflow.source.git.commit"] == "abc"


def test_an_experiment_has_the_tag_of_model_training_and_says_what_it_is(
    outputs: Path, make_facts: Make
) -> None:
    client = Location.at(outputs).client
    client.create_experiment("adhoc", Location.at(outputs).artifacts, {entries.NOTE: "mine"})
    record(outputs, make_facts())
    tags = client.get_experiment_by_name("adhoc").tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    assert tags[entries.NOTE] == "mine", "what a person wrote stays"
    record(outputs, make_facts(), sweep_id="20260103-000000", experiment="smoke")
    assert "suite `smoke`" in client.get_experiment_by_name("smoke").tags[entries.NOTE]


names = st.text("abcdef_-0123456789", min_size=1, max_size=40)
cases = st.builds(
    CaseNight,
    case_id=names,
    verdict=st.sampled_from([verdict.value for verdict in Verdict]),
    failing=st.lists(names, max_size=3).map(tuple),
    margins=st.dictionaries(names, st.floats(0, 1e9).map(lambda value: float(f"{value:.3g}"))),
    seconds=st.none() | st.floats(0, 1e6),
    about=st.dictionaries(names, st.text(max_size=20), max_size=4),
    settings=names,
    checkpoint=names,
)


@given(st.lists(cases, max_size=30, unique_by=lambda case: case.case_id), st.lists(names))
def test_a_summary_is_read_as_it_was_written(known: list[CaseNight], missing: list[str]) -> None:
    tags = nights.packed(known, missing)
    assert all(len(value) <= entries.TAG_LIMIT for value in tags.values())
    assert nights.unpacked(tags) == ({case.case_id: case for case in known}, missing)


@pytest.mark.parametrize("value", ["", "x" * 50, "0", "ÿ"])
def test_a_summary_that_somebody_damaged_is_none(value: str) -> None:
    tags = nights.packed([CaseNight("a", "passed")], [])
    assert nights.unpacked({**tags, f"{nights.PREFIX}0": value}) is None
    assert nights.unpacked({**tags, f"{nights.PREFIX}parts": value}) is None
    assert nights.unpacked({}) is None
