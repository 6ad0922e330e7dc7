"""Cases are held against each other only where they compute the same; else it is said why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from sweep.case import identity
from sweep.case.identity import NOT_COMPUTED, flat, identity_of, is_under
from sweep.checks import comparable, peers
from sweep.facts import Facts
from tests.sweep.conftest import CASE
from tests.sweep.planning import planned

Make = Callable[..., Facts]
LLAMA = ("arch=llama", "layout=single")
OF_NO_CASE = {
    "attempts", "case_id", "cases", "detach", "export", "gpus", "host_gone",
    "launch.cases_per_gpu", "launch.mode", "launch.retries", "launch.slots",
    "launch.stop_after_alike", "launch.timeout_seconds", "locate", "noise.parity",
    "noise.repeats", "notify", "notify_always", "notify_form", "outputs", "plan", "references",
    "replay.below", "replay.case_id", "rerun", "resume_sweep", "shard", "suite", "sweep_id",
    "trainer.not_shown", "trainer.project", "trainer.python", "trainer.tree", "variant",
}  # fmt: skip


def leaves(value: Any, prefix: str = "") -> set[str]:
    """The names of all settings, whatever they are for."""
    names: set[str] = set()
    for one in fields(value):
        inner = getattr(value, one.name)
        names |= (
            leaves(inner, f"{prefix}{one.name}.")
            if is_dataclass(inner)
            else ({f"{prefix}{one.name}"})
        )
    return names


def of(*overrides: str) -> Facts:
    """Facts of the case as it is planned."""
    (one,) = planned([*LLAMA, *overrides])
    return Facts(
        sweep_id="1", case=one.case, started=0.0, seconds=0.0, environment={},
        identity=identity_of(one.settings),
    )  # fmt: skip


def test_every_setting_is_part_of_the_identity_but_those_that_are_listed() -> None:
    settings = planned([*LLAMA])[0].settings
    named = {name for name in leaves(settings) if name.split(".")[0] != "trainer"}
    assert named - set(flat(settings)) == {
        one for one in OF_NO_CASE if one.split(".")[0] != "trainer"
    }
    assert {name for name in OF_NO_CASE if not is_under(name, NOT_COMPUTED)} == set()


def test_a_setting_that_is_new_is_part_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = planned([*LLAMA])[0].settings
    values = identity.plain(settings) | {"new": {"one": 1}}
    monkeypatch.setattr(identity, "plain", lambda _: values)
    assert flat(settings)["new.one"] == 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optim.lr=1e-3", "optim.lr 0.0001 > 0.001"),
        ("data.seed=1", "data.seed 0 > 1"),
        ("dtype=bfloat16", "dtype float32 > bfloat16"),
        ("seed=1", "seed 0 > 1"),
        ("+trainer.env.A=b", "trainer.env.A none > b"),
        ("launch.timeout_seconds=3", ""),
        ("launch.mode=cold", ""),
        ("outputs=elsewhere", ""),
        ("trainer.project=/somewhere", ""),
    ],
)
def test_cases_are_alike_that_differ_in_nothing_that_is_computed(override: str, said: str) -> None:
    assert comparable.unlike(of(), of(override)) == said


def test_an_axis_that_is_freed_may_differ() -> None:
    single, split = of(), of("layout=cp2_ep2", "feature=ac_only", "steps=7")
    assert comparable.unlike(single, split).startswith("layout single > cp2_ep1, feature.name")
    assert comparable.unlike(single, split, ("layout", "feature", "steps")) == ""
    assert comparable.unlike(single, split, ("layout", "steps")).startswith("feature.name base >")


def test_data_that_were_read_may_differ_where_settings_of_the_data_may_not() -> None:
    """`layout=single,cp2 data.seed=1,2` held each seed against the other."""
    first, second = of("data.seed=1"), of("data.seed=2")
    assert comparable.unlike(first, second, comparable.PRODUCED) == "data.seed 1 > 2"
    assert peers.peers(first, {"first": first, "second": second}) == []


def test_many_differences_are_counted() -> None:
    other = of("seed=2", "steps=9", "data.seed=1", "optim.lr=1", "attention_dropout=0.1")
    assert comparable.unlike(of(), other) == (
        "seed 0 > 2, steps 5 > 9, data.seed 0 > 1, optim.lr 0.0001 > 1.0 and 1 more"
    )


def test_a_setting_that_came_later_was_its_default_before() -> None:
    before, now = of(), of("optim.weight_decay=0.5")
    for facts in (before,):
        assert facts.identity is not None
        del facts.identity.settings["optim.weight_decay"]
    assert comparable.unlike(before, of()) == ""
    assert comparable.unlike(before, now) == "optim.weight_decay 0.0 > 0.5"
    assert comparable.unlike(now, before) == "optim.weight_decay 0.5 > 0.0"


@pytest.mark.parametrize("name", comparable.PRODUCED)
def test_what_was_built_and_read_counts_where_both_are_known(make_facts: Make, name: str) -> None:
    before, now = make_facts(), make_facts()
    assert now.identity is not None
    setattr(now.identity, name, "x1")
    assert comparable.unlike(before, now) == f"{name} {name[0]}1 > x1"
    assert comparable.unlike(before, now, (name,)) == ""
    setattr(now.identity, name, None)
    assert comparable.unlike(before, now) == "", "unknown is no difference"


def test_without_an_identity_labels_say_what_differs_and_nothing_that_is_the_same(
    make_facts: Make,
) -> None:
    old, now = make_facts(), make_facts()
    old.identity, old.sweep_id = None, "1"
    unknown = "settings unknown: sweep 1 was recorded by an earlier version"
    assert comparable.unlike(old, now) == unknown
    assert comparable.unlike(now, old) == unknown
    old.case = CASE.model_copy(update={"seed": 3})
    assert comparable.unlike(old, now) == "seed 3 > 0"
    assert comparable.tags(old) == {}


def test_within_one_sweep_of_an_earlier_version_the_ids_say_what_varies(make_facts: Make) -> None:
    one, other = make_facts(), make_facts()
    one.identity = other.identity = None
    assert comparable.unlike(one, other) == ""
    other.case = CASE.model_copy(update={"id": f"{CASE.id}-optim.lr_1"})
    assert comparable.unlike(one, other) == "none > -optim.lr_1"


def test_a_store_finds_comparable_runs_by_a_tag(make_facts: Make) -> None:
    facts = make_facts()
    tags = {"case_id": "a", **comparable.tags(facts)}
    assert comparable.fits(dict(tags), tags)
    assert not comparable.fits({**tags, "case_id": "b"}, tags)
    assert facts.identity is not None
    facts.identity.settings["optim.lr"] = 1e-3
    assert not comparable.fits({"case_id": "a", **comparable.tags(facts)}, tags)
    assert not comparable.fits({"case_id": "a"}, {"case_id": "a"}), "of an earlier version"


def test_an_identity_stays_small_and_survives_the_disk() -> None:
    long = "x" * 10_000
    facts = of(f"+trainer.env.A={long}")
    assert facts.identity is not None
    text = json.dumps(facts.identity.model_dump())
    assert len(text) < 4000
    assert identity.Identity.model_validate_json(text) == facts.identity
    assert comparable.unlike(facts, of(f"+trainer.env.A={long}y")).startswith("trainer.env.A ")
