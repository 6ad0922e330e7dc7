"""What a sweep honours of Hydra's own settings. The others are refused: none is ignored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from sweep.errors import RequestError
from sweep.plan.cases import launcher_of
from sweep.plan.suite import OF_THE_SWEEP

OUTPUTS = "not used, results go to outputs/<sweep id>: say outputs=FOLDER"
PLACE = "not used, a case's processes run where the sweep was started"
# Key -> the only value that a sweep can have, and the next step.
FIXED: dict[str, tuple[object, str]] = {
    "hydra.sweep.dir": ("${outputs}/${sweep_id}", OUTPUTS),
    "hydra.sweep.subdir": ("${case_id}", "a case's folder has the name of the case"),
    "hydra.run.dir": (".", OUTPUTS),
    "hydra.job.chdir": (False, PLACE),
    "hydra.output_subdir": (None, "case.json and sweep.json have what was composed"),
    "hydra.job_logging.root": (None, "each case's logs are in its folder"),
    "hydra.sweeper.max_batch_size": (
        None, "say launch.slots=N, or on Slurm hydra.launcher.array_parallelism=N"
    ),
    "hydra.launcher.submitit_folder": ("${hydra.sweep.dir}/.submitit/%j", OUTPUTS),
    "hydra.launcher.max_num_timeout": (0, "a case is never run again unasked"),
    "hydra.launcher.nodes": (1, "the layout says it, as layout=fsdp4_ep4_n2"),
    "hydra.launcher.tasks_per_node": (1, "a job is one task, which starts the ranks"),
}  # fmt: skip
# submitit on this machine takes these and does nothing with them.
OF_SLURM = ("hydra.launcher.cpus_per_task", "hydra.launcher.gpus_per_node", "hydra.launcher.mem_gb")
INSTEAD = {"submitit_slurm": "slurm", "submitit_local": "local", "basic": "local"}
# Of a sweep; a case in the foreground has none of them.
OF_MULTIRUN = ("hydra.sweep.", "hydra.sweeper.", "hydra/sweeper", "hydra.launcher.",
               "hydra/launcher")  # fmt: skip
IN_JOBS = ("on_job_start", "on_job_end")


def check_case(hydra: DictConfig) -> None:
    """Raise RequestError for an override of Hydra's that a case in the foreground would ignore."""
    for override in hydra.overrides.hydra:
        if override.lstrip("+~").startswith(OF_MULTIRUN):
            raise RequestError(f"{override}: is about a sweep: add -m (python -m sweep -m ...)")
    _check_fixed(hydra, ("hydra.run.dir", "hydra.job.chdir"))


def check_sweep(config: DictConfig, callbacks: Sequence[object]) -> None:
    """Raise RequestError for a setting of Hydra's that a sweep does not honour."""
    fixed = [*FIXED]
    if launcher_of(config) == "local":
        fixed += OF_SLURM
    _check_fixed(config.hydra, fixed)
    for key in config.hydra.sweeper.get("params") or {}:
        if key in (*OF_THE_SWEEP, "outputs") or key.startswith("hydra"):
            raise RequestError(
                f"hydra.sweeper.params.{key}: is about the sweep as a whole: say {key}=... instead"
            )
    for callback in callbacks:
        for name in IN_JOBS:
            nothing = getattr(Callback, name)
            if getattr(type(callback), name, nothing) is not nothing:
                raise RequestError(
                    f"hydra.callbacks: {type(callback).__name__} has {name}, which -m does not"
                    " call: no job composes a config; use on_multirun_start or on_multirun_end"
                )


def check_launcher(config: DictConfig, ours: bool) -> None:
    """Raise RequestError for a launcher that no session can follow."""
    name = launcher_of(config)
    if not ours:
        better = INSTEAD.get(str(name), "local or slurm")
        raise RequestError(f"hydra/launcher={name}: choose hydra/launcher={better}")


def _check_fixed(hydra: DictConfig, keys: Collection[str]) -> None:
    values = {"hydra": OmegaConf.to_container(hydra, resolve=False)}
    for key in keys:
        expected, step = FIXED.get(key, (None, "is for hydra/launcher=slurm"))
        if _value(values, key, expected) != expected:
            raise RequestError(f"{key}: {step}")


def _value(values: Any, key: str, default: object) -> object:
    for part in key.split("."):
        if not isinstance(values, dict) or part not in values:
            return default
        values = values[part]
    return values
