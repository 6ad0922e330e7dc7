"""suite=random: every pair of values is met, and a seed says which part of the cases is run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from sweep.case.machine import Machine
from sweep.errors import RequestError
from sweep.files import conf_dir
from sweep.plan import draws
from sweep.plan.request import Request
from tests.sweep.commands import sweep
from tests.sweep.planning import composed

DRAWS = {"a": [1, 2, 3], "b": ["x", "y"], "c": [False, True], "d": [0.1, 1.0]}
FEW = {
    "arch": ["llama", "qwen3"],
    "layout": ["single", "fsdp2_ep1"],
    "feature": ["none", "unpacked"],
    "seed": [1, 2],
}


def pairs(row: dict[str, Any]) -> set[Any]:
    return set(combinations(sorted((key, str(row[key])) for key in row if key != "variant"), 2))


def test_every_two_values_of_two_settings_meet() -> None:
    met = set().union(*map(pairs, draws.rows(DRAWS)))
    wanted = {
        tuple(sorted([(one, str(x)), (other, str(y))]))
        for one, other in combinations(DRAWS, 2)
        for x in DRAWS[one]
        for y in DRAWS[other]
    }
    assert met == wanted


def test_the_array_of_the_suite_is_the_same_each_time_and_has_all_its_pairs() -> None:
    drawn = OmegaConf.to_container(OmegaConf.load(conf_dir() / "suite" / "random.yaml").draws)
    rows = draws.rows(drawn)
    assert rows == draws.rows(drawn)
    assert len({row["variant"] for row in rows}) == len(rows)
    met = {pair for row in rows for pair in pairs(row)}
    assert (("arch", "qwen4_exp"), ("layout", "dp2_cp2_ep4")) in met
    assert len(rows) < 400


def fake(part: Sequence[list[str]]) -> list[Any]:
    """Combinations as they are; those with an odd number cannot run here."""
    return [
        SimpleNamespace(case=words, unavailable="odd" if int(words[0]) % 2 else None)
        for words in part
    ]


@given(st.integers(1, 30), st.integers(0, 50), st.integers(1, 9))
def test_a_part_has_as_many_cases_as_were_asked_for_if_so_many_can_run(
    size: int, seed: int, count: int
) -> None:
    array = [[str(number)] for number in range(size)]
    part = [case.case[0] for case in draws.dealt(array, fake, seed, count)]
    able = [str(number) for number in range(size) if number % 2 == 0]
    assert len(part) == min(count, len(able))
    assert len(set(part)) == len(part)
    assert set(part) <= set(able)


@given(st.integers(1, 30), st.integers(1, 9))
def test_seeds_in_a_row_run_every_case_that_can_run(size: int, count: int) -> None:
    array = [[str(number)] for number in range(size)]
    seeds = range(-(-size // count))
    met = {case.case[0] for seed in seeds for case in draws.dealt(array, fake, seed, count)}
    assert met == {str(number) for number in range(size) if number % 2 == 0}


def asked(*words: str, **fields: Any) -> list[str]:
    request = Request("night", [], None, None, False, False, Path(), draws=FEW, **fields)
    overrides = OverridesParser.create().parse_overrides([*words])
    return [case.case.id for case in request.cases(overrides, composed, Machine())]


def test_drawn_cases_are_named_by_their_number_and_narrowed_by_choices() -> None:
    ids = asked(count=3)
    assert len(ids) == 3
    assert all("-draw_" in name for name in ids)
    assert not any("fsdp2" in name and "unpacked" in name for name in ids), "it cannot run"
    only = asked("arch=qwen3", count=9)
    assert only
    assert all(name.startswith("qwen3-") for name in only)
    with pytest.raises(RequestError, match="nothing in the suite matches arch=laguna"):
        asked("arch=laguna")


def test_another_seed_runs_other_cases() -> None:
    assert asked(count=2, seed=0) != asked(count=2, seed=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("suite=random", "cases=0"), "cases=0: of a suite that draws, say how many"),
        (("suite=smoke", "cases=3"), "cases=3: a number is for suites that draw"),
        (("suite=smoke", "cases=llama"), "cases=llama: say [ID,...], or a number"),
    ],
)
def test_a_number_of_cases_that_makes_no_sense_is_one_line(
    words: tuple[str, ...], said: str
) -> None:
    done = sweep("-m", *words, "plan=true")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_what_drawn_cases_are_compared_with_can_be_added() -> None:
    alone = asked("layout=fsdp2_ep1", "feature=none", count=2)
    added = asked("layout=fsdp2_ep1", "feature=none", count=2, references=True)
    assert not any("-single-" in name for name in alone)
    assert set(alone) < set(added)
    assert any("-single-" in name for name in added)
