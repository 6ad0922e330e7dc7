"""Which values of each of the built-in trainer's settings the suites use, as a Markdown table.

python scripts/settings_table.py [SUITE...]

What no case uses cannot break visibly. The last column says why a setting that the nights leave at
its default is not in them; tests/sweep/test_settings_table.py holds the nights to that.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from sft.config import Config
from sweep import schema
from sweep.case.machine import Machine
from sweep.files import conf_dir
from sweep.plan import plan, suite
from sweep.report.markdown import table
from sweep.trainers.base import in_folders
from sweep.trainers.sft import SftTrainer

NIGHTS = ("nightly", "resume_all")
MOST = 4
"""At most so many values are named in a cell."""

NOT_IN_THE_NIGHTS = {
    "model.dtype": "thresholds are far wider in bfloat16: the GPU suites have it",
    "model.attention": "flex needs a GPU to be compiled: suite=two_gpus",
    "model.linear_attention": "fla needs a GPU: suite=two_gpus",
    "data.seq_len": "the default is the scale's: 512 at nano, 2048 at tiny",
    "data.path": "a file of the user's; tests/sft",
    "optim.max_grad_norm": "the default of 1 clips most steps of a tiny model, and leaves some",
    "memory.compile_backend": "the default is the fastest that the machine has; tests/sft",
    "memory.ep_backend": "deepep needs its package: the nightly lists its case as unavailable",
    "resume.allow": "for people; tests/sft",
    "choices.replay": "a tie makes the sweep itself start such a launch",
    "choices.below": "likewise",
    "profile_step": "makes a step slower; tests/sweep/test_cost.py",
    "fault": "suite=faults",
}
"""Settings that the nights leave at their default, and why."""

OF_A_MACHINE = ("model.path", "output_dir")
"""Paths, which differ in every launch."""


def values(name: str) -> dict[str, list[Any]]:
    """Setting -> its distinct values in the launches of a suite's cases for `sft`."""
    used: dict[str, list[Any]] = {}
    for config in configs(name):
        for key, value in leaves(config):
            if value not in used.setdefault(key, []):
                used[key].append(value)
    return used


def configs(name: str) -> Iterator[dict[str, Any]]:
    """The config file of every launch."""
    schema.register()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        rows = OmegaConf.to_container(OmegaConf.load(conf_dir() / "suite" / f"{name}.yaml").rows)
        assert isinstance(rows, list)
        cases = plan(suite.combinations({}, rows), _composed, Machine())
        for planned in cases:
            if planned.settings.trainer.adapter != "sft" or planned.unavailable:
                continue
            trainer = SftTrainer()
            launches = trainer.launches(planned.settings)
            for launch, folder in in_folders(launches, Path("sweep/case")):
                yield trainer.config(planned.settings, launch, folder, Path("model"))


def _composed(words: Sequence[str]) -> DictConfig:
    return compose("config", list(words))


def leaves(config: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of each setting."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value


def defaults() -> dict[str, Any]:
    """Every setting of the trainer with its default."""
    config = OmegaConf.to_container(OmegaConf.structured(Config))
    assert isinstance(config, dict)
    named = {str(key): value for key, value in config.items()}
    return {key: value for key, value in leaves(named) if key not in OF_A_MACHINE}


def unused(used: Mapping[str, Sequence[Any]]) -> set[str]:
    """The settings that no launch has at another value than the default."""
    return {
        key
        for key, default in defaults().items()
        if all(value == default for value in used.get(key, []))
    }


def main(names: Sequence[str]) -> None:
    """Print the table."""
    of_suites = {name: values(name) for name in names}
    rows = [
        (
            f"`{key}`",
            _cell([default]),
            *(_cell(used.get(key, [default])) for used in of_suites.values()),
            NOT_IN_THE_NIGHTS.get(key, ""),
        )
        for key, default in defaults().items()
    ]
    print("\n".join(table(("setting", "default", *names, "why not in the nights"), rows)))


def _cell(used: Sequence[Any]) -> str:
    shown = ", ".join(str(value) for value in used[:MOST])
    return shown if len(used) <= MOST else f"{shown}, {len(used) - MOST} more"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", default=[*NIGHTS, "faults"], metavar="SUITE")
    main(parser.parse_args().suites)
