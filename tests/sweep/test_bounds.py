"""Values that no trainer could run are refused while planning, each with what to say instead."""

from __future__ import annotations

import math
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import schema
from sweep.case import bounds
from sweep.errors import RequestError
from sweep.schema import Settings
from sweep.trainers.sft import SftConf


def good() -> Settings:
    found = Settings(trainer=SftConf())
    found.arch = schema.ArchConf(name="llama", moe=False)
    found.layout = schema.LayoutConf(world_size=4, dp_shard=2, cp=2, ep=2)
    found.feature.name, found.scale.name = "base", "auto"
    return found


def changed(key: str, value: object) -> Settings:
    settings = good()
    place, _, name = key.rpartition(".")
    setattr(attrgetter(place)(settings) if place else settings, name, value)
    return settings


def refusal(key: str, value: object) -> str:
    with pytest.raises(RequestError) as refused:
        bounds.check(changed(key, value))
    return str(refused.value)


@pytest.mark.parametrize("key", ["steps", "seed", "data.seq_len", "launch.slots"])
def test_a_number_with_a_digit_too_many_is_refused(key: str) -> None:
    assert f"{key}={10**20}: say" in refusal(key, 10**20)


def test_the_defaults_are_allowed() -> None:
    bounds.check(good())
    bounds.check(changed("optim.lr", 0.0))


@pytest.mark.parametrize("key", [*bounds.RANGES, *bounds.ABOVE_ZERO])
def test_a_number_out_of_its_range_is_refused_by_its_key(key: str) -> None:
    for value in (-1, math.nan, math.inf):
        assert refusal(key, value).startswith(f"{key}={value}: say ")


@pytest.mark.parametrize("group", bounds.NAMES)
@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "..", "a b", "a\nb", "-x", ".hidden"])
def test_a_name_that_is_no_part_of_a_path_is_refused(group: str, name: str) -> None:
    assert refusal(f"{group}.name", name).startswith(f"{group}.name={name}: say ")


@given(st.text())
def test_whatever_name_is_allowed_stays_in_its_folder(name: str) -> None:
    try:
        bounds.check(changed("feature.name", name))
    except RequestError:
        return
    assert "/" not in name
    assert not name.startswith(".")


def test_what_contradicts_itself_is_refused() -> None:
    assert "feature.compile=true" in refusal("feature.fullgraph", True)
    assert "feature.compile=true" in refusal("feature.compile_backend", "eager")
    assert refusal("outputs", "").startswith("outputs=: say a folder")
    assert "profile_step=99: the case has" in refusal("profile_step", 99)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("data.global_batch", 3, "data.global_batch=3 in a layout with dp_shard=2: say a multiple"),
        ("data.micro_batch", 3, "data.micro_batch, 6"),
        ("data.seq_len", 513, "data.seq_len=513 in a layout with cp=2: say a multiple"),
    ],
)
def test_a_batch_that_the_ranks_cannot_share_is_refused(key: str, value: int, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        bounds.check_data(changed(key, value))
    bounds.check_data(changed("data.seq_len", 512))
