"""The built-in trainer: `torchrun -m sft CONFIG.json`, which writes metrics.jsonl."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweep.case.labels import plain
from sweep.errors import MachineryError, RequestError
from sweep.schema import Settings, TrainerConf
from sweep.trainers import definitions
from sweep.trainers.base import (
    CHOICES,
    Launch,
    Trainer,
    before,
    exports_at,
    in_folders,
    saves_at,
)  # fmt: skip
from sweep.trainers.module import ModuleTrainer
from sweep.trainers.template import SWITCHES
from sweep.trainers.tree import moved
from sweep.trainers.understood import EXPORTS, keys, understood

KERNELS = ("attention", "linear_attention")
MEMORY = (*(key for key in SWITCHES if key not in KERNELS), "compile_backend")
CHECK = (sys.executable, "-P", "-m", "sft", "--check")
PATIENCE = 120.0  # seconds: it answers in a fraction of one
KEYS = {
    "memory.": "feature.",
    "model.attention_dropout": "attention_dropout",
    "model.attention": "feature.attention",
    "model.linear_attention": "feature.linear_attention",
    "model.dtype": "dtype",
    "data.packed": "feature.packed",
    "checkpoint.save_at": "feature.resume_at",
}
"""The trainer's name for a setting -> the sweep's, where they differ."""


@dataclass
class SftConf(TrainerConf):
    """The built-in trainer."""

    name: str = "sft"
    adapter: str = "sft"


class SftTrainer(ModuleTrainer):
    """Translates a case into the trainer's config file."""

    module = "sft"

    def check(self, cases: Sequence[Settings]) -> list[str | None]:
        """What the trainer itself says of them, asked once; it does not import torch for it."""
        if not cases:
            return []
        asked = []
        for settings in cases:
            config = self.config(settings, self.launches(settings)[0], Path(), None)
            asked.append(_asked(config, settings))
        return [_reason(answer) for answer in _answers(asked, moved(cases[0]).trainer.env)]

    def config(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> dict[str, Any]:
        """Its settings, in its own words; of another commit, as far as it has them."""
        config = self._config(settings, launch, directory, model)
        conf = settings.trainer
        if conf.tree is None:
            return config
        return understood(config, Path(conf.project or conf.tree))

    def _config(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> dict[str, Any]:
        feature, optim = (plain(settings)[key] for key in ("feature", "optim"))
        layout = settings.layout
        return {
            "model": {
                "path": str(model),
                "dtype": settings.dtype.value,
                "attention_dropout": settings.attention_dropout,
                **{key: feature[key] for key in KERNELS},
            },
            "data": {"path": None, **asdict(settings.data), "packed": settings.feature.packed},
            "optim": optim,
            "layout": {"dp_shard": layout.dp_shard, "cp": layout.cp, "ep": layout.ep},
            "memory": {key: feature[key] for key in MEMORY},
            "checkpoint": _checkpoint(settings, launch, directory),
            "choices": self._choices(settings, launch, directory),
            "steps": settings.steps,
            "seed": settings.seed,
            "output_dir": str(directory),
            "profile_step": settings.profile_step,
            "fault": settings.fault,
        }

    def _choices(self, settings: Settings, launch: Launch, directory: Path) -> dict[str, Any]:
        """Kept by the whole run; a replay makes those of another case's, in the same sweep."""
        replay = settings.replay
        if replay.case_id is None:
            return {"keep": launch.first_step == 1}
        whole = self.launches(settings)[:1]
        ((_, theirs),) = in_folders(whole, directory.parents[2] / replay.case_id)
        return {"replay": str(theirs / CHOICES), "below": replay.below}

    def oracle(self, settings: Settings) -> dict[str, Any]:
        """The case says what decays; documents are cut to a row and packed in order."""
        own = {"decay": settings.optim.decay.value}
        return definitions.of_case(settings) | definitions.of_our_data(settings) | own

    def export(self, settings: Settings, directory: Path) -> Path | None:
        """In a folder for each step; nowhere at a commit that could not yet."""
        conf = settings.trainer
        if conf.tree is not None and EXPORTS not in keys(Path(conf.project or conf.tree)):
            return None
        return directory / "exports" / f"step_{settings.steps - 1}"


def _asked(config: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """A configuration, with what planning knows of the machine and the architecture."""
    kinds = {"indexer": settings.arch.indexer, "gated_delta": settings.arch.delta_net}
    return config | {
        "assume": {
            "device": settings.device.value,
            "model": settings.arch.name,
            "layers": [kind for kind, has_it in kinds.items() if has_it],
        }
    }


def _answers(asked: list[dict[str, Any]], env: Mapping[str, str]) -> list[dict[str, Any] | None]:
    """What the trainer says of configurations; raises MachineryError if it says nothing."""
    try:
        done = subprocess.run(
            CHECK, input=json.dumps(asked), env=os.environ | env,
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineryError(f"the trainer cannot be asked what it can do: {error}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MachineryError(f"{shlex.join(CHECK)} fails: {last}")
    answers: list[dict[str, Any] | None] = json.loads(done.stdout)
    return answers


def _reason(answer: dict[str, Any] | None) -> str | None:
    """Why a case cannot run here; raises RequestError if it can run nowhere."""
    if answer is None:
        return None
    reason = re.sub("|".join(map(re.escape, KEYS)), lambda key: KEYS[key[0]], str(answer["reason"]))
    if not answer["unfit"]:
        raise RequestError(reason)
    return reason


def _checkpoint(settings: Settings, launch: Launch, directory: Path) -> dict[str, Any]:
    """Each launch saves what the next one resumes from.

    It saves after the step before as well, so that each resume is from a process's second save.
    """
    step, earlier = saves_at(settings, launch), before(settings, launch, directory)
    folder = None
    if earlier is not None:
        folder = str(earlier[1] / "checkpoints" / f"step_{launch.first_step - 1}")
    saves = [] if step is None else range(max(launch.first_step, step - 1), step + 1)
    return {"save_at": [*saves], "export_at": _exports(settings, launch), "resume_from": folder}


def _exports(settings: Settings, launch: Launch) -> list[int]:
    step = exports_at(settings, launch)
    return [] if step is None else [step]


TRAINER: Trainer = SftTrainer()
