from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from rich.console import Console

import tiny_models
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.checks import peers
from sweep.errors import RequestError
from sweep.facts import Facts, asked_of
from sweep.files import conf_dir
from sweep.plan import estimates, listing, plan, shards, suite, varying_keys
from sweep.plan.request import Request
from sweep.store import Location, durations
from tests.sweep.commands import ROOT
from tests.sweep.planning import composed


def rows(name: str) -> list[dict[str, Any]]:
    loaded = OmegaConf.load(conf_dir() / "suite" / f"{name}.yaml")
    assert loaded.name == name
    return OmegaConf.to_container(loaded.rows)


def chosen(*overrides: str) -> suite.Choices:
    return suite.choices(OverridesParser.create().parse_overrides([*overrides]))


def narrowed(name: str, *overrides: str) -> list[list[str]]:
    return suite.combinations(chosen(*overrides), rows(name))


def test_a_choice_is_found_in_a_row_however_either_writes_it() -> None:
    row = {"arch": "llama", "fault": [None, "dead_model:0", "dead_model:1.0e-6", "a b"]}
    found = suite.combinations(chosen("fault=null,dead_model:0,'a b'"), [row])
    assert [one[1] for one in found] == ["fault=null", "fault=dead_model:0", "fault='a b'"]


def test_a_layout_is_chosen_by_its_degrees_as_case_ids_have_them() -> None:
    row = {"arch": ["llama", "qwen3_moe"], "layout": ["fsdp4_ep4", "cp2_ep2", "single"]}
    request = Request("night", [row], None, None, False, False, Path())
    for words, ids in (
        ("layout=fsdp4_ep1", ["llama-fsdp4_ep1-base"]),
        ("layout=fsdp4_ep4", ["llama-fsdp4_ep1-base", "qwen3_moe-fsdp4_ep4-base"]),
        (
            "layout=cp2_ep1,single",
            ["llama-cp2_ep1-base", "llama-single-base", "qwen3_moe-single-base"],
        ),
    ):
        overrides = OverridesParser.create().parse_overrides([words])
        assert [one.case.id for one in request.cases(overrides, composed, Machine())] == ids
    with pytest.raises(RequestError, match="nothing in the suite matches layout=fsdp8_ep1"):
        request.cases(
            OverridesParser.create().parse_overrides(["layout=fsdp8_ep1"]), composed, Machine()
        )


@cache
def nightly() -> list[Planned]:
    return plan(narrowed("nightly"), composed, Machine())


def test_the_suite_of_parity_has_every_arch_in_one_process_and_in_two_layouts() -> None:
    cases = [one.case for one in plan(narrowed("parity"), composed, Machine())]
    for arch in tiny_models.names():
        layouts = [case.layout for case in cases if case.arch == arch]
        assert len(layouts) >= 3
        assert "single" in layouts


def test_the_nightly_is_34_launches_of_every_arch_in_two_layouts() -> None:
    matrix = [planned for planned in nightly() if planned.settings.variant is None]
    cases = [planned.case for planned in matrix]
    assert sum(estimates.launches(planned)[0] for planned in matrix) == 34
    assert len({case.id for case in cases}) == len(cases) == 32
    base = [case for case in cases if case.feature in ("base", "resume")]
    assert set(Counter(case.arch for case in base).values()) == {2}
    assert len({case.arch for case in base}) == 13
    assert len([case for case in cases if case.feature not in ("base", "resume")]) == 6


def test_resume_all_resumes_every_arch_in_both_layouts() -> None:
    assert len(narrowed("resume_all")) == 26
    assert all("feature=resume" in one for one in narrowed("resume_all"))


def test_choices_narrow_what_rows_say_and_add_what_they_leave_open() -> None:
    cases = narrowed("nightly", "arch=qwen3_moe,llama", "layout=cp4_ep4", "seed=1,2")
    assert [[word for word in case if "." not in word] for case in cases] == [
        [f"arch={arch}", "layout=cp4_ep4", f"feature={feature}", f"seed={seed}"]
        for arch, feature in [("llama", "base"), ("qwen3_moe", "base"), ("qwen3_moe", "fullgraph")]
        for seed in "12"
    ]
    assert all("optim.weight_decay=0.1" in case for case in cases)


def test_a_value_that_is_no_choice_replaces_the_rows() -> None:
    mine = [{"arch": "llama", "layout": "single", "steps": 8, "data.path": "a b"}]
    cases = suite.combinations(chosen("steps=3"), mine)
    assert cases == [["arch=llama", "layout=single", "steps=3", "data.path='a b'"]]


def test_what_is_said_of_the_sweep_is_not_said_of_its_cases() -> None:
    assert chosen("suite=nightly", "shard=1/4", "plan=true", "seed=3") == {"seed": ["3"]}


def test_a_selection_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(RequestError, match="nothing in the suite matches arch=llama feature=fullg"):
        narrowed("nightly", "arch=llama", "feature=fullgraph")


def test_rows_without_a_case_are_an_error() -> None:
    with pytest.raises(RequestError, match="has no case: a list in each of its rows is empty"):
        suite.combinations({}, [{"arch": [], "layout": "single"}])


def test_the_workflow_of_a_night_runs_each_of_its_shards() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    job = workflow["jobs"]["shard"]
    numbers = job["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len({one.case.arch for one in nightly()}) >= len(numbers)
    words = next(step["run"] for step in job["steps"] if "sweep" in step.get("run", "")).split("-m")
    said = words[-1].replace("${{ matrix.shard }}", str(numbers[-1])).replace("$CHOICES", "")
    parsed = OverridesParser.create().parse_overrides(said.split())
    request = {one.key_or_group: one.value() for one in parsed}
    last = f"{len(numbers)}/{len(numbers)}"
    assert request == {"suite": "nightly", "shard": last, "launch.stop_after_alike": 5}


def test_two_suites_at_once_are_an_error() -> None:
    with pytest.raises(RequestError, match="suite: one value"):
        chosen("suite=nightly,smoke")


def test_a_key_that_only_some_rows_have_tells_cases_apart() -> None:
    assert varying_keys([["arch=a", "+x=1"], ["arch=b"], ["arch=b", "+x=1"]]) == {"": {"x"}}
    assert varying_keys([["arch=a", "x=1"], ["arch=b", "x=1"]]) == {"": set()}


def test_a_variants_name_stands_for_its_settings_in_an_id() -> None:
    one = ["arch=llama", "layout=single"]
    rich = [*one, "variant=rich", "optim.lr=1e-3", "optim.warmup_steps=2"]
    combined = [one, [*rich, "seed=1"], [*rich, "seed=2"]]
    cases = plan(combined, composed, Machine(), varying_keys(combined))
    assert [case.case.id for case in cases] == [
        "llama-single-base", "llama-single-base-rich-seed_1", "llama-single-base-rich-seed_2",
    ]  # fmt: skip
    assert cases[1].settings.optim.warmup_steps == 2


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "a/b", "1/4/2", "-1/4"])
def test_a_bad_shard_is_an_error(text: str) -> None:
    with pytest.raises(RequestError, match=r"say I/N"):
        shards.parse(text)


@cache
def recorded_seconds() -> dict[str, float]:
    """What the cases of a night took, on two cores."""
    path = Path(__file__).parent / "recorded" / "nightly_seconds.json"
    return dict(json.loads(path.read_text()))


def costs(random: Any) -> dict[str, float]:
    """What they might take in another night."""
    recorded = recorded_seconds()  # but of what was unavailable
    return {
        one.case.id: recorded.get(one.case.id, 10.0) * random.uniform(0.8, 1.25)
        for one in nightly()
    }


def parts(cost: dict[str, float], count: int) -> list[list[Planned]]:
    return [shards.select(nightly(), cost, (index, count)) for index in range(1, count + 1)]


@given(st.integers(1, 9), st.randoms())
def test_the_shards_are_the_suite_with_no_case_twice(count: int, random: Any) -> None:
    found = [one.case.id for part in parts(costs(random), count) for one in part]
    assert sorted(found) == sorted(one.case.id for one in nightly())


@given(st.integers(2, 9))
def test_a_runner_that_cannot_run_some_cases_splits_the_suite_as_the_others(count: int) -> None:
    cost = {one.case.id: 20.0 for one in nightly()}
    poor = [
        replace(one, unavailable="needs a GPU") if one.case.arch < "m" else one for one in nightly()
    ]
    for index in range(1, count + 1):
        part, same = (shards.select(some, cost, (index, count)) for some in (nightly(), poor))
        assert [one.case for one in part] == [one.case for one in same]


@cache
def facts_of(case_id: str) -> Facts:
    one = next(one for one in nightly() if one.case.id == case_id)
    return Facts(sweep_id="s", case=one.case, started=0, seconds=0, environment={},
                 asked=asked_of(one.settings))  # fmt: skip


def compared_with(planned: list[Planned]) -> dict[str, str | None]:
    """Case id -> the case of the plan that it is compared with first."""
    facts = {one.case.id: facts_of(one.case.id) for one in planned}
    others = {name: peers.candidates(one, facts) for name, one in facts.items()}
    return {name: found[0].case.id if found else None for name, found in others.items()}


@given(st.integers(2, 9), st.randoms())
def test_every_case_is_compared_in_a_shard_as_in_the_whole_suite(count: int, random: Any) -> None:
    whole = compared_with(nightly())
    # one of each arch has none, and of those with settings of their own one
    assert len([other for other in whole.values() if other]) == 32 - 13 + 1
    for part in parts(costs(random), count):
        assert compared_with(part) == {one.case.id: whole[one.case.id] for one in part}


def test_a_shard_of_a_great_many_is_found_at_once() -> None:
    cost = dict.fromkeys((one.case.id for one in nightly()), 1.0)
    assert shards.select(nightly(), cost, (1, 10**9))
    with pytest.raises(RequestError, match="architectures to share out"):
        shards.select(nightly(), cost, (10**9, 10**9))


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1000), max_size=20), st.integers(1, 6))
def test_shards_do_not_depend_on_the_order_of_the_suite(
    times: dict[str, float], count: int
) -> None:
    backwards = dict(reversed(times.items()))
    assert shards.pack(times, count) == shards.pack(backwards, count)


@given(st.integers(1, 4), st.randoms())
def test_the_longest_shard_is_within_a_seventh_of_the_best_possible(
    count: int, random: Any
) -> None:
    for cost in (recorded_seconds(), costs(random)):
        units: dict[str, float] = {}
        for case_id, seconds in cost.items():
            arch = case_id.partition("-")[0]
            units[arch] = units.get(arch, 0.0) + seconds
        loads = [sum(units[unit] for unit in part) for part in shards.pack(units, count)]
        assert max(loads) <= 1.15 * least_possible(sorted(units.values(), reverse=True), count)


def least_possible(times: list[float], count: int) -> float:
    """Nothing is shorter: of `count` shards, one has two of the `count + 1` longest units."""
    two = times[count - 1] + times[count] if count < len(times) else 0.0
    return max(sum(times) / count, times[0], two)


def test_more_shards_than_archs_is_an_error() -> None:
    cost = dict.fromkeys((one.case.id for one in nightly()), 1.0)
    with pytest.raises(RequestError, match="only 13 architectures"):
        shards.select(nightly(), cost, (14, 14))


def planned(arch: str, feature: str = "base") -> Planned:
    return next(one for one in nightly() if (one.case.arch, one.case.feature) == (arch, feature))


def test_estimates_are_medians_of_recorded_runs_else_of_the_table() -> None:
    cases = [planned("llama"), planned("qwen4_exp"), planned("qwen3_moe", "resume")]
    recorded = {cases[0].case.id: [10.0, 500.0, 30.0]}
    assert list(estimates.seconds(cases, recorded).values()) == [30.0, 90.0, 60.0]


def test_shards_of_one_night_agree_on_what_is_recorded() -> None:
    midnight = 1_800_000_000 - 1_800_000_000 % 86_400
    evening, morning = midnight - 3600, midnight + 3 * 3600
    assert estimates.cut_off(evening) == estimates.cut_off(morning) == midnight - 86_400
    assert estimates.cut_off(midnight + 7 * 3600) == midnight


def test_recorded_durations_are_read_from_mlflow(outputs: Path, monkeypatch: Any) -> None:
    client = Location.at(outputs).client
    experiment = client.create_experiment("nightly", str(outputs / "artifacts"))
    for seconds, verdict, device, start in [
        (10.0, "passed", "cpu", 1000),
        (11.0, "passed", "cpu", 9000),
        (3.0, "crashed", "cpu", 1000),
        (99.0, "passed", "cuda", 1000),
    ]:
        tags = {"kind": "case", "verdict": verdict, "device": device, "case_id": "a"}
        run = client.create_run(experiment, start_time=start, tags=tags)
        client.log_metric(run.info.run_id, "time/total_seconds", seconds)
    assert durations.of_cases(outputs, "cpu", before=5.0) == {"a": [10.0]}
    assert durations.of_cases(outputs / "none", "cpu", before=5.0) == {}
    assert durations.of_cases(outputs, "cpu", before=5.0, shards=True) == {}  # not shared
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{outputs}/mlflow.db")
    assert durations.of_cases(outputs, "cpu", before=5.0, shards=True) == {"a": [10.0]}


def test_shards_ask_a_server_again_and_say_that_it_does_not_answer(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(durations, "PAUSES", (0.0, 0.0))
    asked: list[str] = []
    fail = durations._by_case
    monkeypatch.setattr(durations, "_by_case", lambda *said: asked.append("") or fail(*said))
    assert durations.of_cases(tmp_path, "cpu", before=5.0) == {}
    assert (len(asked), capsys.readouterr().err) == (1, "")
    assert durations.of_cases(tmp_path, "cpu", before=5.0, shards=True) == {}
    assert len(asked) == 1 + 3
    assert "shards are split by conf/estimates.yaml" in capsys.readouterr().err


def test_a_plan_shows_launches_estimates_and_what_is_unavailable(capsys: Any) -> None:
    one = planned("qwen3_moe", "resume")
    stuck = Planned(one.case, one.settings, one.overrides, "needs a GPU")
    listing.show(
        [planned("llama"), stuck],
        estimates.seconds([planned("llama"), stuck], {}),
        lambda _cases: (200.0, 2),
    )
    text = capsys.readouterr().out
    assert "needs a GPU" in text
    assert "2 cases, 4-6 launches; 1 unavailable; about 3 min, 2 at a time" in text


@pytest.mark.parametrize("width", [60, 80])
def test_a_plan_fits_the_terminal(width: int) -> None:
    reason = "DeepEP dispatch needs the deep_ep package, which is not installed"
    longest = planned("qwen3_moe", "optim_offload_off")
    case = longest.case.model_copy(update={"id": "nemotron_h-dp2_cp2_ep4-optim_offload_off"})
    stuck = Planned(case, longest.settings, longest.overrides, reason)
    out = io.StringIO()
    listing.show([planned("llama"), stuck], {planned("llama").case.id: 60.0},
                 lambda _cases: (60.0, 1), Console(file=out, width=width))  # fmt: skip
    assert max(map(len, out.getvalue().splitlines())) <= width
    assert f"not here, {reason}: {case.id}" in " ".join(out.getvalue().split())


def asked(suite_name: str | None) -> Request:
    return Request(
        experiment="x",
        rows=rows(suite_name) if suite_name else [],
        shard=None,
        earlier=None,
        plan_only=True,
        detach=False,
        outputs=Path("none"),
    )


@pytest.mark.parametrize("suite_name", [None, "smoke"])
def test_what_is_the_same_for_all_cases_is_in_no_id(suite_name: str | None) -> None:
    overrides = ["arch=llama,qwen3_moe", "outputs=/tmp/x", "steps=3"]
    if suite_name is None:
        overrides += ["layout=single"]
    parsed = OverridesParser.create().parse_overrides(overrides)
    cases = asked(suite_name).cases(parsed, composed, Machine())
    assert {len(one.case.id.split("-")) for one in cases} == {3}
