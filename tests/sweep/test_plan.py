from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

import tiny_models
from sweep.case.labels import layout_name, layout_named, slug
from sweep.case.machine import Machine
from sweep.errors import RequestError
from sweep.files import conf_dir
from sweep.plan import plan, quoted
from sweep.schema import ArchConf, FeatureConf, LayoutConf, ScaleConf
from tests.sweep.planning import COMMAND, CPU, composed, planned


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def test_the_archs_of_conf_are_those_of_tiny_models() -> None:
    assert names("arch") == sorted(tiny_models.names())


@pytest.mark.parametrize(
    ("group", "shape"),
    [("arch", ArchConf), ("layout", LayoutConf), ("feature", FeatureConf), ("scale", ScaleConf)],
)
def test_every_file_holds_what_its_name_says(group: str, shape: type) -> None:
    for name in names(group):
        values = OmegaConf.load(conf_dir() / group / f"{name}.yaml")
        values.pop("defaults", None)
        held = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(shape), values))
        assert (layout_name(held) if isinstance(held, LayoutConf) else held.name) == name


def test_a_dense_arch_runs_a_layout_without_expert_parallelism() -> None:
    one, two = planned(["arch=llama", "layout=cp4_ep4"], ["arch=qwen3_moe", "layout=cp4_ep4"])
    assert (one.case.id, one.settings.layout.ep) == ("llama-cp4_ep1-base", 1)
    assert (two.case.id, two.settings.layout.ep) == ("qwen3_moe-cp4_ep4-base", 4)


def test_the_scale_and_device_follow_the_machine() -> None:
    overrides = ["arch=llama", "layout=single"]
    on_cpu = planned(overrides)[0]
    assert (on_cpu.case.scale, on_cpu.settings.data.seq_len) == ("nano", 512)
    on_gpu = planned(overrides, machine=Machine(("0", "1")))[0].case
    assert (on_gpu.scale, on_gpu.device) == ("tiny", "cuda")


def test_two_ways_to_the_same_case_are_one_case(tmp_path: Path) -> None:
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "mine.yaml").write_text(
        "world_size: 4\ndp_shard: 1\ncp: 4\nep: 2\nnodes: 1\n"
    )
    search = f"hydra.searchpath=[file://{tmp_path}]"
    cases = planned(["arch=llama", "layout=cp4_ep4", search], ["arch=llama", "layout=mine", search])
    assert [one.case.id for one in cases] == ["llama-cp4_ep1-base"]


def test_what_varies_beyond_the_three_names_is_in_the_id() -> None:
    base = ["arch=llama", "layout=single"]
    cases = planned([*base, "seed=0", "optim.lr=0.1"], [*base, "seed=1", "optim.lr=0.1"])
    assert [one.case.id for one in cases] == [
        "llama-single-base-seed_0",
        "llama-single-base-seed_1",
    ]


def test_nothing_selected_is_an_error() -> None:
    with pytest.raises(RequestError, match="nothing selected"):
        planned()


def test_what_the_trainer_cannot_do_is_unavailable_with_the_reason() -> None:
    overrides = ["arch=llama", "layout=single", "feature.ep_backend=deepep"]
    one = plan([overrides], composed, CPU)[0]
    assert one.unavailable is not None
    assert "deep_ep" in one.unavailable


def test_more_gpus_than_the_machine_has_are_unavailable_and_never_waited_for() -> None:
    overrides = ["arch=llama", "layout=fsdp4_ep4", "device=cuda"]
    (fits,) = planned(overrides, machine=Machine(tuple("0123")))
    (large,) = planned(overrides, machine=Machine(("0", "1")))
    (alone,) = planned(["arch=llama", "layout=single", "device=cuda"])
    assert fits.unavailable is None
    assert large.unavailable == "GPUs needed: 4; this machine has 2"
    assert alone.unavailable == "GPUs needed: 1; this machine has 0"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("layout.world_size=3", "not dp_shard times cp"),
        ("layout.ep=3", "must divide"),
        ("layout.cp=0", "at least 1"),
        ("steps=0", "steps=0: say 1 or more"),
        ("launch.slots=0", "say 1 or more"),
        ("launch.timeout_seconds=0", "above 0"),
        ("trainer.adapter=other", "no such adapter; choose from"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(override: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        planned(["arch=qwen3_moe", "layout=cp4_ep4", override])


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=300))
def test_any_value_comes_back_from_an_override(value: str) -> None:
    override = OverridesParser.create().parse_override(f"key={quoted(value)}")
    assert override.value() == value


@given(st.text(max_size=400), st.text(max_size=400))
def test_a_slug_is_a_file_name_and_keeps_values_apart(one: str, two: str) -> None:
    for text in (one, two):
        assert len(slug(text)) <= 60
        assert not set(slug(text)) & set("/=,%@[]{} \0\n")
    if one != two:
        assert slug(one) != slug(two)


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(["gpt_oss", "qwen3_moe"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(["cp2_ep2", "single"]), min_size=1, max_size=3),
)
def test_a_plan_holds_every_combination_once(archs: list[str], layouts: list[str]) -> None:
    chosen = [
        (f"arch={arch}", f"layout={layout}") for arch, layout in itertools.product(archs, layouts)
    ]
    cases = plan(chosen, fast_compose, CPU)
    assert len({one.case.id for one in cases}) == len(cases) == len(set(chosen))


COMPOSED: dict[tuple[str, ...], DictConfig] = {}


def fast_compose(overrides: Sequence[str]) -> DictConfig:
    key = tuple(overrides)
    if key not in COMPOSED:
        COMPOSED[key] = composed([*key, *COMMAND])
    return COMPOSED[key]


@pytest.mark.parametrize(
    "name",
    ["fsdp4_ep1", "cp4_ep1", "dp2_cp2_ep1", "cp8_ep4", "dp4_cp2_ep8_n2", *names("layout")],
)
def test_a_layout_is_what_its_name_says_with_a_file_or_without(name: str) -> None:
    (one,) = planned(["arch=qwen3_moe", f"layout={name}"])
    assert one.case.layout == name
    assert name == "single" or layout_named(name) == one.settings.layout


def test_what_is_no_name_of_degrees_is_no_layout() -> None:
    for name in ("fsdp1_ep1", "fsdp4", "cp2_ep2_n1", "dp2_cp1_ep2", "single_ep1", "../fsdp4_ep4"):
        assert layout_named(name) is None
