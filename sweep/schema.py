"""The typed shape of the configuration; `conf/` holds the values, this says what may be there.

An unknown key or a wrong type in any file of `conf/` is an error while composing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class ActivationCheckpointing(Enum):
    """How much of the forward pass is recomputed in the backward pass."""

    none = "none"
    selective = "selective"
    full = "full"


class ExpertDispatch(Enum):
    """How tokens travel to the ranks that hold their experts."""

    all_to_all = "all_to_all"
    deepep = "deepep"


class Dtype(Enum):
    """Type of the parameters; comparisons between layouts are only exact in float32."""

    float32 = "float32"
    bfloat16 = "bfloat16"


class Device(Enum):
    """`auto` is a GPU if the machine has one."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


@dataclass
class ArchConf:
    """An architecture: what planning has to know of it without building it."""

    name: str = MISSING
    moe: bool = MISSING  # a dense architecture runs every layout with ep=1
    indexer: bool = False  # some layers attend to the keys that an indexer picks


@dataclass
class LayoutConf:
    """Degrees of parallelism; world_size = dp_shard * cp, and ep splits the same ranks."""

    world_size: int = MISSING
    dp_shard: int = MISSING
    cp: int = MISSING
    ep: int = MISSING
    nodes: int = 1


@dataclass
class FeatureConf:
    """Memory features in the trainer's absence: an adapter translates them."""

    name: str = MISSING
    compile: bool = False
    compile_backend: str | None = None  # the trainer's own choice
    fullgraph: bool = False
    ac: ActivationCheckpointing = ActivationCheckpointing.none
    act_offload: bool = False
    optim_offload: bool = False
    full_offload: bool = False
    ep_backend: ExpertDispatch = ExpertDispatch.all_to_all
    packed: bool = True  # false: each document of a row is computed by itself
    # save after each of these steps, and go on from there in fresh processes, one after another
    resume_at: list[int] = field(default_factory=list)
    min_steps: int | None = None  # the case trains at least so many


@dataclass
class ScaleConf:
    """Size of the tiny checkpoint: `nano`, `tiny`, or `auto` (nano without a GPU)."""

    name: str = MISSING


@dataclass
class TrainerConf:
    """What every trainer has; each has its own subclass in `conf/trainer`."""

    name: str = MISSING
    adapter: str = MISSING  # the module of sweep/trainers that translates for it
    env: dict[str, str] = field(default_factory=dict)  # added to the environment of its processes
    not_shown: list[str] = field(default_factory=list)  # figures it has none of, as params_moved


@dataclass
class SftConf(TrainerConf):
    """The built-in trainer."""

    name: str = "sft"
    adapter: str = "sft"


class HfSharding(Enum):
    """Who shards the model under transformers' Trainer."""

    transformers = "transformers"  # from_pretrained(distributed_config=...): FSDP2 and experts
    accelerate = "accelerate"  # TrainingArguments(fsdp=...)


@dataclass
class HfTrainerConf(TrainerConf):
    """transformers' own Trainer."""

    name: str = "hf_trainer"
    adapter: str = "hf_trainer"
    sharding: HfSharding = HfSharding.transformers


@dataclass
class PrimeRlConf(TrainerConf):
    """PrimeIntellect-ai/prime-rl's SFT trainer."""

    name: str = "prime_rl"
    adapter: str = "prime_rl"
    project: str | None = None  # the folder that uv runs it from
    dataset: str | None = None  # a Hugging Face data set; random tokens without
    renderer: str | None = None  # of its package `renderers`, for a data set


@dataclass
class TorchtitanConf(TrainerConf):
    """pytorch/torchtitan."""

    name: str = "torchtitan"
    adapter: str = "torchtitan"
    python: str | None = None  # an interpreter that has it; our own otherwise


class MetricsFormat(Enum):
    """What a trainer writes its figures as."""

    jsonl = "jsonl"
    csv = "csv"
    tensorboard = "tensorboard"
    log = "log"


@dataclass
class MetricsConf:
    """Where a trainer's figures are, and what it calls them (docs/trainers.md)."""

    format: MetricsFormat = MetricsFormat.jsonl
    path: str | None = None  # in the launch's folder, * allowed; by default metrics.jsonl, ...
    fields: dict[str, str] = field(default_factory=dict)  # our name -> its name (a.b: b inside a)
    pattern: str | None = None  # format=log: a regular expression with the groups step, loss, ...
    merge: str | None = None  # format=jsonl: lines of one step are one, if one has this figure
    first_step: int = 1  # the number it gives to its first step


@dataclass
class ResumeConf:
    """What the second launch of a case that resumes has more, or otherwise."""

    checkpoint: str = "{output_dir}/checkpoint"  # what the first launch saved: {resume_from}
    argv: list[str] = field(default_factory=list)  # words added to the command
    files: dict[str, str] = field(default_factory=dict)  # added, or instead of those of that name
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class CommandConf(TrainerConf):
    """Any program, by its command line, its config files and what it writes.

    {words} in braces are filled in, in argv, files and env alike (docs/trainers.md lists them); a
    word that comes out empty is left out. A checkpoint is only built where {model} is asked for.
    """

    name: str = "command"
    adapter: str = "command"
    argv: list[str] = MISSING
    torchrun: bool = False  # start argv on world_size ranks with torchrun
    files: dict[str, str] = field(default_factory=dict)  # name in {output_dir} -> text
    spelling: dict[str, dict[Any, Any]] = field(default_factory=dict)  # {word} -> ours -> theirs
    metrics: MetricsConf = field(default_factory=MetricsConf)
    resume: ResumeConf = field(default_factory=ResumeConf)
    archs: list[str] | None = None  # what it can do; null: everything
    layouts: list[str] | None = None  # patterns on names, as in fsdp*_ep1
    features: list[str] | None = None  # keys of a feature file, as in compile, ac=full, resume_at


@dataclass
class DataConf:
    """The training data: packed chat documents, the same global batch in every layout."""

    seq_len: int | None = None  # tokens a row; 512 at nano, 2048 at tiny, whose indexers keep more
    global_batch: int = 4
    micro_batch: int = 1
    seed: int = 0


@dataclass
class OptimConf:
    """AdamW. At a learning rate of 1e-6 a few steps barely move the weights."""

    lr: float = 1e-4
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    aux_loss_coef: float = 0.0  # of the loss that balances the load of experts
    router_bias_rate: float = 0.0  # by how much a step moves the routers' correction biases


class LaunchMode(Enum):
    """`cold`: plain torchrun. `warm`: ranks are forked from a process with everything imported."""

    cold = "cold"
    warm = "warm"


@dataclass
class LaunchConf:
    """How the trainer is started, for how long, and how many cases run at once."""

    mode: LaunchMode | None = None  # by default warm where the trainer can
    timeout_seconds: float = 900.0
    slots: int | None = None  # cases at once; by default what the GPUs hold, one without a GPU
    cases_per_gpu: int = 1  # tiny models leave room for more, but then their times say little


@dataclass
class SuiteConf:
    """A named set of cases; its name is the MLflow experiment."""

    name: str = MISSING
    rows: list[dict[str, Any]] = MISSING  # each the product of what it lists
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
    dtype: Dtype = Dtype.float32
    device: Device = Device.auto
    steps: int = 5
    seed: int = 0
    attention_dropout: float = 0.0
    fault: str | None = None  # name[:strength] of one to plant, to see what catches it
    outputs: str = "outputs"  # results and, without MLFLOW_TRACKING_URI, the MLflow store
    suite: SuiteConf | None = None
    shard: str | None = None  # I/N: the I-th of N parts
    resume_sweep: str | None = (
        None  # an earlier sweep's id, or latest: run what it has no result for
    )
    rerun: str | None = None  # failed: run what failed in that sweep instead
    plan: bool = False  # list what would run, and run nothing
    detach: bool = False  # submit and return; python -m sweep.collect judges later
    sweep_id: str | None = None  # set by the sweep for its jobs
    case_id: str | None = None  # likewise
    gpus: str | None = None  # likewise: what the launcher reserved for the job


TRAINERS = {
    node.adapter: node
    for node in (SftConf, CommandConf, HfTrainerConf, PrimeRlConf, TorchtitanConf)
}


def register() -> None:
    """Make the schema known to Hydra: the root, and one for each kind of trainer."""
    from hydra.core.config_store import ConfigStore  # jobs have no need of Hydra

    store = ConfigStore.instance()
    store.store(name="sweep_schema", node=Settings)
    for name, node in TRAINERS.items():
        store.store(group="schema/trainer", name=name, node=node)
