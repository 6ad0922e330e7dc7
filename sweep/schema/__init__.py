"""The typed shape of the configuration; `conf/` holds the values, this says what may be there.

An unknown key or a wrong type in any file of `conf/` is an error while composing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from sweep.schema.case import (
    ActivationCheckpointing,
    ArchConf,
    Attention,
    DataConf,
    Device,
    Dtype,
    ExpertDispatch,
    FeatureConf,
    LaunchConf,
    LaunchMode,
    LayoutConf,
    LinearAttention,
    NoiseConf,
    NotifyForm,
    OptimConf,
    ReplayConf,
    ScaleConf,
)
from sweep.schema.trainer import (
    MetricsConf,
    MetricsFormat,
    ResumeConf,
    TrainerConf,
    trainer_confs,
)

__all__ = [
    "ActivationCheckpointing", "ArchConf", "Attention", "DataConf", "Device", "Dtype",
    "ExpertDispatch", "FeatureConf", "LaunchConf", "LaunchMode", "LayoutConf",
    "LinearAttention", "MetricsConf", "MetricsFormat", "NoiseConf", "NotifyForm", "OptimConf",
    "ReplayConf", "ResumeConf", "ScaleConf", "Settings", "SuiteConf", "TrainerConf", "register",
    "trainer_confs",
]  # fmt: skip


@dataclass
class SuiteConf:
    """A named set of cases; its name is the MLflow experiment."""

    name: str = MISSING
    rows: list[dict[str, Any]] = MISSING  # each the product of what it lists
    # setting -> values of which combinations are drawn; `seed` says which, `cases` how many
    draws: dict[str, list[Any]] = field(default_factory=dict)
    caught_by: dict[str, list[str]] = field(default_factory=dict)  # check -> faults it is meant for
    calibrates: dict[str, list[str]] = field(default_factory=dict)  # check.figure -> faults to show


@dataclass
class Settings:
    """One composed case."""

    arch: ArchConf = field(default_factory=ArchConf)
    layout: LayoutConf = field(default_factory=LayoutConf)
    feature: FeatureConf = field(default_factory=FeatureConf)
    trainer: TrainerConf = field(default_factory=TrainerConf)
    scale: ScaleConf = field(default_factory=ScaleConf)
    data: DataConf = field(default_factory=DataConf)
    optim: OptimConf = field(default_factory=OptimConf)
    launch: LaunchConf = field(default_factory=LaunchConf)
    noise: NoiseConf = field(default_factory=NoiseConf)
    dtype: Dtype = Dtype.float32
    device: Device = Device.auto
    steps: int = 5
    seed: int = 0
    attention_dropout: float = 0.0
    export: bool = True  # the trainer exports its checkpoint before the last step, if it can
    profile_step: int = 0  # a step whose operators the trainer counts; 0: none
    # a name for settings that differ from those of a suite's other rows, in the case's id
    variant: str | None = None
    fault: str | None = None  # name[:strength] of one to plant, to see what catches it
    outputs: str = "outputs"  # results and, without MLFLOW_TRACKING_URI, the MLflow store
    suite: SuiteConf | None = None
    # of all that is asked for, only those with these ids; of a suite that draws: how many
    cases: Any = None
    shard: str | None = None  # I/N: the I-th of N parts
    resume_sweep: str | None = None  # an earlier sweep's id, or latest: run what it left out
    rerun: str | None = None  # failed: run what failed in that sweep instead
    host_gone: bool = False  # the other host that drove the sweep to resume is gone
    references: bool = False  # add what a case is compared with where the sweep has no such case
    locate: bool = False  # look into each failed comparison at the end: where do the two part
    plan: bool = False  # list what would run, and run nothing
    notify: str | None = None  # a webhook's address, which gets the short summary at the end
    notify_form: NotifyForm = NotifyForm.auto
    notify_always: bool = False  # also where no verdict has changed since the night before
    detach: bool = False  # submit and return; python -m sweep.collect judges later
    sweep_id: str | None = None  # set by the sweep for its jobs
    case_id: str | None = None  # likewise
    gpus: str | None = None  # likewise: what the launcher reserved for the job
    replay: ReplayConf = field(default_factory=ReplayConf)  # likewise: a tie that a job settles
    attempts: list[str] = field(default_factory=list)  # likewise: how earlier attempts ended

    @property
    def gpus_per_node(self) -> int:
        """How many GPUs the case takes on each of its nodes: one a rank, or none."""
        return self.layout.ranks_per_node if self.device is Device.cuda else 0


def register() -> None:
    """Make the schema known to Hydra: the root, and one for each kind of trainer."""
    from hydra.core.config_store import ConfigStore  # jobs have no need of Hydra

    store = ConfigStore.instance()
    store.store(name="sweep_schema", node=Settings)
    for name, node in trainer_confs().items():
        store.store(group="schema/trainer", name=name, node=node)
