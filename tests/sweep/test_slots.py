from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra_plugins.sweep_plugins.launcher import SlotLauncher
from sweep.case.machine import Machine
from sweep.errors import Interrupted
from sweep.run import slots
from sweep.run.slots import Pool, SlotRunner, makespan, minutes
from sweep.schema import LaunchConf
from tests.sweep.planning import planned


@dataclass
class Job:
    """Ends when it was asked `life` times."""

    life: int
    gpus: tuple[str, ...]

    def done(self) -> bool:
        self.life -= 1
        return self.life <= 0


@dataclass
class Scene:
    """Runs jobs without waiting, and remembers what ran beside what."""

    lives: list[int]
    gpus: list[int]
    machine: Machine = Machine()  # noqa: RUF009  # frozen
    slots: int | None = None
    cases_per_gpu: int = 1
    ended: list[int] = field(default_factory=list)
    most: int = 0

    def run(self) -> Scene:
        slots.POLL_SECONDS = 0.0
        limits = LaunchConf(slots=self.slots, cases_per_gpu=self.cases_per_gpu)
        self.runner = SlotRunner(Pool(self.machine, limits), self.start, self.end, self.tick)
        self.runner.run(self.gpus)
        return self

    def start(self, index: int, gpus: tuple[str, ...]) -> Job:
        return Job(self.lives[index], gpus)

    def end(self, index: int, _job: Job) -> None:
        self.ended.append(index)

    def tick(self) -> None:
        self.most = max(self.most, len(self.runner.running))
        held = [gpu for _, gpus in self.runner.running.values() for gpu in gpus]
        assert all(held.count(gpu) <= self.cases_per_gpu for gpu in held), "too many on a GPU"
        for _, gpus in self.runner.running.values():
            assert len(gpus) == len(set(gpus)), "two ranks share a GPU"


def test_without_a_gpu_one_case_runs_at_a_time() -> None:
    scene = Scene([3, 1, 2], [0, 0, 0]).run()
    assert (scene.ended, scene.most) == ([0, 1, 2], 1)


def test_six_jobs_on_two_slots_are_never_three() -> None:
    assert Scene([3, 1, 4, 1, 5, 9], [0] * 6, slots=2).run().most == 2


def test_a_small_case_starts_beside_one_that_leaves_room() -> None:
    scene = Scene([9, 9, 2], [3, 3, 1], Machine(("0", "1", "2", "3"))).run()
    assert scene.ended == [2, 0, 1]


def test_gpus_are_named_as_the_parent_names_them() -> None:
    pool = Pool(Machine(("2", "GPU-abc")), LaunchConf())
    assert pool.take(1) == ("2",)
    assert pool.take(1) == ("GPU-abc",)
    assert pool.take(1) is None
    pool.give_back(("2",))
    assert pool.take(1) == ("2",)


def test_gpus_with_room_for_several_cases_hold_several() -> None:
    scene = Scene([9] * 5, [2] * 5, Machine(("0", "1")), cases_per_gpu=3).run()
    assert scene.most == 3


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), max_size=12),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(1, 3),
)
def test_every_job_runs_once_within_the_bounds(
    jobs: list[tuple[int, int]], bound: int | None, cases_per_gpu: int
) -> None:
    lives, needs = [life for life, _ in jobs], [need for _, need in jobs]
    gpus = tuple("0123")
    scene = Scene(lives, needs, Machine(gpus), bound, cases_per_gpu)
    scene.run()
    assert sorted(scene.ended) == list(range(len(jobs)))
    assert scene.most <= (bound or len(gpus) * cases_per_gpu)


def test_what_is_foreseen_counts_the_gpus_of_each_case() -> None:
    four = Machine(tuple("0123"))
    assert makespan(Pool(four, LaunchConf()), [(60.0, 4)] * 3) == (180.0, 1)
    assert makespan(Pool(four, LaunchConf(cases_per_gpu=2)), [(60.0, 4)] * 3) == (120.0, 2)
    assert makespan(Pool(four, LaunchConf()), [(60.0, 2), (90.0, 4), (60.0, 2)]) == (150.0, 2)
    assert makespan(Pool(Machine(), LaunchConf(slots=2)), [(10.0, 0)] * 3) == (20.0, 2)
    assert makespan(Pool(Machine(), LaunchConf()), []) == (0.0, 0)


def test_a_jobs_time_limit_leaves_room_for_every_launch() -> None:
    words = ["arch=llama", "layout=single", "launch.timeout_seconds=90"]
    (one,) = planned(words)
    (resume,) = planned([*words, "feature=resume", "trainer=sft"])
    assert (minutes(one.settings), minutes(resume.settings)) == (12, 18)


PARAMS = {"submitit_folder": "", "timeout_min": 0, "name": "sweep"}


def test_a_job_is_known_before_it_is_started_so_that_no_signal_comes_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        assert known == [0]
        raise Interrupted("SIGTERM")

    known: list[int] = []
    launcher = SlotLauncher(**PARAMS)
    launcher.observer = SimpleNamespace(
        machine=Machine(), limits=LaunchConf(), folder=None, start_servers=dict, tick=lambda: None,
        gpus_of=lambda _: 0, settings_of=lambda *_: None,
        submitted=lambda index, _: known.append(index),
    )  # fmt: skip
    monkeypatch.setattr(launcher, "_submit", interrupted)
    with pytest.raises(Interrupted):
        launcher.launch([["arch=llama"]], 0)


def test_a_job_that_hangs_before_its_trainer_starts_is_ended(tmp_path: Path) -> None:
    (one,) = planned(["arch=llama", "layout=single"])
    limits = [
        SlotLauncher(**{**PARAMS, **given})._executor(tmp_path, one.settings).parameters
        for given in ({}, {"timeout_min": 7})
    ]
    assert [one["timeout_min"] for one in limits] == [25, 7]
