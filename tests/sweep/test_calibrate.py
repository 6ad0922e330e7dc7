"""Thresholds lie between correct and broken runs, or there are none."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sweep.calibrate import config, document
from sweep.calibrate.__main__ import checked, in_use, main, plan_of, separated
from sweep.calibrate.populations import populations
from sweep.calibrate.rule import FACTOR, Delta, Population
from sweep.case.labels import fault_suffix
from sweep.checks import thresholds
from sweep.checks.thresholds import Table
from sweep.errors import RequestError
from sweep.facts import ExportFacts, Facts, OracleFacts, Step
from sweep.files import ConfDirs
from tests.sweep.confs import instead_of_ours, limits
from tests.sweep.conftest import CASE

FLOOR = 1e-7
Make = Callable[..., Facts]
deltas = st.lists(st.floats(0, 1e3), min_size=1, max_size=6)


def population(correct: Sequence[float], broken: Sequence[float]) -> Population:
    return Population(
        "resume",
        "loss",
        "cpu",
        "float32",
        [Delta(f"good-{n}", value) for n, value in enumerate(correct)],
        [Delta(f"bad-{n}", value, f"fault_{n}") for n, value in enumerate(broken)],
        FLOOR,
    )


@given(deltas, deltas)
def test_a_threshold_separates_all_correct_from_all_broken_runs(
    correct: list[float], broken: list[float]
) -> None:
    found = population(correct, broken)
    if found.threshold is None:
        assert min(broken) < FACTOR * max(*correct, FLOOR)
        assert found.refusal
    else:
        assert max(*correct, FLOOR) < found.threshold < min(broken)
        assert not found.still_separates(found.threshold)
        exact = math.sqrt(max(*correct, FLOOR) * min(broken))
        assert found.threshold == pytest.approx(exact, rel=0.01)


@given(deltas, deltas, st.floats(1e-3, 1e3))
def test_a_threshold_scales_with_its_figure(
    correct: list[float], broken: list[float], scale: float
) -> None:
    found = population([*correct, FLOOR], broken)
    scaled = Population(
        "resume",
        "loss",
        "cpu",
        "float32",
        [Delta(one.case, one.value * scale) for one in found.correct],
        [Delta(one.case, one.value * scale, one.fault) for one in found.broken],
        FLOOR * scale,
    )
    assert scaled.separation == pytest.approx(found.separation)


def test_less_than_a_factor_of_ten_apart_names_what_is_too_weak() -> None:
    found = population([1e-4, 0], [1e-2, 9e-4, 5e-4])
    assert found.threshold is None
    assert "fault_1 in bad-1 (9.0e-04), fault_2 in bad-2 (5.0e-04)" in found.refusal
    assert "fault_0" not in found.refusal


def test_equal_runs_are_no_closer_than_the_figure_can_show() -> None:
    found = population([0, 0], [1e-3])
    assert found.largest_correct == FLOOR
    assert found.threshold == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize(
    ("correct", "broken", "said"),
    [
        ([], [1.0], "no correct run"),
        ([0.0], [], "no broken run"),
        ([math.inf], [1.0], "good-0 is correct, and its figures are not finite"),
    ],
)
def test_what_was_not_measured_gives_no_threshold(
    correct: list[float], broken: list[float], said: str
) -> None:
    assert said in population(correct, broken).refusal


@pytest.mark.parametrize(
    ("value", "said"),
    [(1e-7, "good-0 is correct"), (1e-5, ""), (2e-3, "fault_0 in bad-0 is off by 1.0e-03")],
)
def test_a_threshold_in_use_is_held_against_todays_runs(value: float, said: str) -> None:
    against = population([1e-6], [1e-3]).still_separates(value)
    assert said in against
    assert bool(said) == bool(against)


def test_what_is_written_is_read_as_a_threshold_with_its_provenance(
    tmp_path: Path,
) -> None:
    (tmp_path / thresholds.FILE).write_text(
        "resume: {loss: {cpu: {float32: {value: 1, mean: 0.5, source: by hand}}}}\n"
    )
    found = population([0, 0], [1e-3])
    config.write(tmp_path, [found], "20260101", {"torch": "9.9"}, dt.date(2026, 1, 1))
    table = thresholds.table(instead_of_ours(tmp_path))
    threshold = table.of("resume", "loss", "cpu", "float32")
    assert threshold.value == found.threshold
    assert threshold.mean == 0.5, "what calibration says nothing of is kept"
    assert threshold.calibration is not None
    assert threshold.calibration["weakest"] == "bad-0"
    assert threshold.calibration["made"] == {
        "date": "2026-01-01",
        "sweep": "20260101",
        "torch": "9.9",
    }


def test_other_calibrated_figures_are_kept(tmp_path: Path) -> None:
    path = tmp_path / thresholds.CALIBRATED
    path.write_text("parity: {loss: {cuda: {float32: {value: 1, source: there}}}}\n")
    config.write(tmp_path, [population([0], [1e-3])], "s", {}, dt.date(2026, 1, 1))
    assert yaml.safe_load(path.read_text())["parity"]["loss"]["cuda"]["float32"]["value"] == 1


def test_calibrated_thresholds_that_cannot_be_read_are_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / thresholds.CALIBRATED
    path.write_text("parity: {loss: [")
    with pytest.raises(RequestError, match=r"calibrated\.yaml: while parsing") as told:
        config.write(tmp_path, [population([0], [1e-3])], "s", {}, dt.date(2026, 1, 1))
    assert "\n" not in str(told.value)
    assert path.read_text() == "parity: {loss: ["


def test_the_page_shows_every_delta_and_the_plot_is_drawn(tmp_path: Path) -> None:
    found = [population([0, 1e-6], [1e-3]), population([1e-4], [5e-4])]
    text = document.page(found, "20260101", {"torch": "9.9"})
    assert "torch 9.9" in text
    assert "none: too close" in text
    assert all(f"bad-0 | {value}" in text for value in ("1.0e-03", "5.0e-04"))
    document.draw(found, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_a_suite_without_broken_runs_cannot_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RequestError, match="has no `calibrates`"):
        plan_of("smoke", ConfDirs())
    assert main(["suite=nonsense"]) == 2
    assert "there are" in capsys.readouterr().err


def steps(losses: Sequence[float], first: int = 1, **more: object) -> list[Step]:
    return [
        Step.model_validate(
            {"step": n, "loss": loss, "grad_norm": 1.0, "global_batch_digest": str(n), **more}
        )
        for n, loss in enumerate(losses, first)
    ]


def named(facts: Facts, case_id: str, **labels: object) -> Facts:
    facts.case = CASE.model_copy(update={"id": case_id, **labels})
    return facts


@pytest.fixture
def resumed(make_facts: Make) -> Make:
    """A case that resumed after its third step, and the losses of the resumed launch."""

    def make(case_id: str, losses: Sequence[float], fault: str | None = None) -> Facts:
        facts = make_facts(steps([8.0, 7.0, 6.0, 5.0, 4.0]))
        again = make_facts(steps(losses, first=4)).launches[0]
        facts.launches.append(again.model_copy(update={"name": "resume"}))
        facts.asked |= {"resume_at": [3]}
        return named(facts, case_id, fault=fault)

    return make


def test_each_resume_counts_by_its_farthest_step(resumed: Make) -> None:
    every = [
        resumed("good", [5.0, 4.0]),
        resumed("lost", [5.0, 4.25], "resume_without_moments:1"),
        resumed("other", [9.0, 9.0], "resume_ignored"),
    ]
    plan = {"resume.loss": ["resume_without_moments"]}
    found, mean = populations({one.case.id: one for one in every}, plan, limits())
    assert [(one.case, one.value) for one in found.correct] == [("good", 0.0)]
    assert [(one.case, one.value) for one in found.broken] == [("lost", 0.25)]
    assert found.floor == 5.0 * 2.0**-23, "what float32 can show at a loss of 5"
    assert mean.name == "resume.loss.cpu.float32.mean"
    assert [(one.case, one.value) for one in mean.broken] == [("lost", 0.125)]
    assert mean.floor == found.floor / 2, "one unit in one of two steps"


def test_a_kind_without_runs_of_a_figure_is_left_out_and_a_figure_without_any_is_refused(
    resumed: Make,
) -> None:
    every = [resumed("good", [5.0, 4.0]), resumed("good-bf16", [5.0, 4.0])]
    every[1].case = every[1].case.model_copy(update={"dtype": "bfloat16"})
    every[1].asked.pop("resume_at")
    cases = {one.case.id: one for one in every}
    found = populations(cases, {"resume.loss": ["f"], "parity.choices": ["f"]}, limits())
    assert [one.name for one in found] == [
        "resume.loss.cpu.float32",
        "resume.loss.cpu.float32.mean",
        "parity.choices.cpu.float32",
    ]
    assert found[2].refusal == "parity.choices.cpu.float32: no correct run was measured"


def test_a_figure_may_be_asked_to_show_fewer_faults_in_a_dtype_that_hides_some(
    resumed: Make,
) -> None:
    faults = ("resume_without_rng", "resume_without_moments")
    every = [
        resumed(f"{fault} {dtype}", [5.0, 4.25], fault)
        for fault in faults
        for dtype in ("float32", "bfloat16")
    ]
    for one in every:
        one.case = one.case.model_copy(update={"dtype": one.case.id.split()[1]})
    plan = {"resume.loss": {"float32": faults, "bfloat16": faults[1:]}}
    found = populations({one.case.id: one for one in every}, plan, limits())
    assert {one.dtype: [broken.fault for broken in one.broken] for one in found} == {
        "float32": [*faults],
        "bfloat16": [*faults[1:]],
    }


def test_layouts_count_by_their_worst_group_and_the_reference_does_not(make_facts: Make) -> None:
    def layout(case_id: str, world_size: int, norm: float, fault: str | None = None) -> Facts:
        facts = make_facts(steps([8.0] * 5, grad_norm_groups={"router": norm, "head": 1.0}))
        facts.asked |= {"cp": 1, "ep": world_size}
        labels = {"arch": "a", "feature": "base", "layout": case_id, "world_size": world_size}
        name = f"a-{case_id}-base{fault_suffix(fault)}"
        return named(facts, name, fault=fault, **labels)

    every = [layout("single", 1, 2.0), layout("fsdp2_ep2", 2, 2.0 + 2e-6)]
    every.append(layout("fsdp2_ep2", 2, 2.2, "ep_grad_scaled:1.1"))
    cases = {one.case.id: one for one in every}
    found, mean = populations(cases, {"parity.grad_norm": ["ep_grad_scaled"]}, limits())
    assert [one.case for one in found.correct] == ["a-fsdp2_ep2-base"]
    assert found.correct[0].value == pytest.approx(1e-6)
    assert found.broken[0].value == pytest.approx(0.1)
    assert found.threshold == pytest.approx(math.sqrt(1e-6 * 0.1), rel=0.01)
    (head, _) = populations(cases, {"parity.grad_norm_head": ["ep_grad_scaled"]}, limits())
    assert [one.value for one in (*head.correct, *head.broken)] == [0.0, 0.0]
    assert mean.is_mean
    assert mean.correct[0].value == pytest.approx(1e-6)
    groups = {"parity.grad_norm": ["ep_grad_scaled"], "parity.grad_norm_router": ["ep_grad_scaled"]}
    others, _, router, _ = populations(cases, groups, limits())
    assert [one.value for one in (*others.correct, *others.broken)] == [0.0, 0.0]
    assert [one.value for one in router.broken] == [pytest.approx(0.1)]


def test_the_oracle_and_an_export_count_by_the_facts_of_the_case_alone(make_facts: Make) -> None:
    def case(case_id: str, off: float, fault: str | None = None) -> Facts:
        facts = make_facts(steps([8.0 * (1 + off)] * 5))
        facts.oracle = OracleFacts(steps=steps([8.0] * 5))
        facts.export = ExportFacts(step=5, loss=8.0)
        return named(facts, case_id, fault=fault)

    every = [case("good", 1e-6), case("bad", 1e-3, "rope_base_wrong:1")]
    every += [named(make_facts(), "unasked")]
    plan = {name: ["rope_base_wrong"] for name in ("oracle.loss", "export.loss")}
    found = populations({one.case.id: one for one in every}, plan, limits())
    assert [one.name for one in found if not one.is_mean] == [
        "oracle.loss.cpu.float32", "export.loss.cpu.float32",
    ]  # fmt: skip
    for one in found:
        assert [(delta.case, delta.value) for delta in one.correct] == [
            ("good", pytest.approx(1e-6))
        ]
        assert [(delta.case, delta.value) for delta in one.broken] == [("bad", pytest.approx(1e-3))]


def test_choices_are_counted_by_place_and_cases_without_any_are_left_out(make_facts: Make) -> None:
    def layout(case_id: str, world_size: int, apart: int, fault: str | None = None) -> Facts:
        places = [2.0] * apart + [1.0] * (256 - apart)
        facts = make_facts(
            steps([8.0] * 5, choices_by_place=places, counters={"choices_fingerprint": sum(places)})
        )
        facts.asked |= {"cp": 1, "ep": world_size}
        labels = {"arch": "a", "feature": "base", "layout": case_id, "world_size": world_size}
        return named(facts, f"a-{case_id}-base{fault_suffix(fault)}", fault=fault, **labels)

    every = [layout("single", 1, 0), layout("fsdp2_ep2", 2, 0)]
    every.append(layout("fsdp2_ep2", 2, 16, "router_bf16:1"))
    (found,) = populations(
        {one.case.id: one for one in every}, {"parity.choices": ["router_bf16"]}, limits()
    )
    assert [one.value for one in found.correct] == [0.0]
    assert [one.value for one in found.broken] == [16.0]
    assert (found.floor, found.threshold) == (1.0, 4.0)
    for facts in every:
        for step in facts.steps:
            step.choices_by_place = []
    (none,) = populations(
        {one.case.id: one for one in every}, {"parity.choices": ["router_bf16"]}, limits()
    )
    assert not none.correct


def test_the_bound_of_a_mean_is_written_with_its_figure_and_never_alone(tmp_path: Path) -> None:
    value = population([0], [1e-3])
    mean = dataclasses.replace(value, broken=[Delta("bad", 1e-4, "f")], is_mean=True)
    path = config.write(tmp_path, [value, mean], "s", {"torch": "9.9"}, dt.date(2026, 1, 1))
    assert path.read_text().count("9.9") == 1, "the sweep is described once"
    written = yaml.safe_load(path.read_text())["resume"]["loss"]["cpu"]["float32"]
    assert written["value"] == value.threshold
    assert written["mean"] == mean.threshold == pytest.approx(math.sqrt(FLOOR * 1e-4), rel=0.01)
    assert written["mean_calibration"]["weakest"] == "bad"
    thresholds.Threshold.model_validate(written)
    path = config.write(tmp_path, [value], "later", {}, dt.date(2026, 1, 2))
    assert "mean" not in yaml.safe_load(path.read_text())["resume"]["loss"]["cpu"]["float32"]
    too_close = population([1e-4], [5e-4])
    assert separated([too_close, mean]) == []
    assert separated([value, mean]) == [value, mean]


def test_a_mean_without_a_bound_in_use_is_a_wrong_request_and_names_the_command() -> None:
    mean = Population("cost", "memory_growth", "cpu", "float32", [], [], FLOOR, is_mean=True)
    with pytest.raises(RequestError, match="no bound of the mean is configured; run"):
        in_use(mean, limits())


def test_a_mean_too_close_for_a_bound_has_none_to_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limit = thresholds.Threshold(value=1e-4, source="a test")
    table = Table(thresholds={"resume": {"loss": {"cpu": {"float32": limit}}}})
    mean = dataclasses.replace(population([1e-4], [5e-4]), is_mean=True)
    assert checked([population([0], [1e-3]), mean], table) == 0
    assert "resume.loss.cpu.float32.mean: none in use; " in capsys.readouterr().out
    assert checked([population([0], [1e-5]), mean], table) == 1
