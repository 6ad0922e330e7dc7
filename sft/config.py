"""The trainer's configuration: one JSON file, checked against these dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sft.errors import ConfigError, UnfitError

DTYPES = ("float32", "bfloat16")
CHECKPOINTING = ("none", "full", "selective")
EP_BACKENDS = ("all_to_all", "deepep")
COMPILE_BACKENDS = ("eager", "aot_eager", "inductor")
ATTENTION = ("sdpa", "flex")
LINEAR_ATTENTION = ("torch", "fla")
DECAY = ("matrices", "all")
WIDEST_TIE = 1e-3
"""No choice between scores that are further apart is kept: it ties in no layout."""


@dataclass
class ModelConfig:
    path: str = ""
    """Folder of a transformers checkpoint."""
    dtype: str = "float32"
    """float32, or bfloat16: parameters, and their gradients but while ranks or micro-batches are
    added up, which is in float32."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped in training."""
    attention: str = "sdpa"
    """The kernel of softmax attention: sdpa (torch's scaled dot product attention) or flex."""
    linear_attention: str = "torch"
    """What computes gated delta nets: torch's operators, or fla (flash-linear-attention)."""


@dataclass
class DataConfig:
    path: str | None = None
    """JSONL with a `messages` list a line; the documents that ship with the package when empty."""
    seq_len: int = 512
    """Tokens a row; documents are packed into rows."""
    global_batch: int = 4
    """Rows a step, over all ranks."""
    micro_batch: int = 1
    """Rows a rank computes at once."""
    packed: bool = True
    """Without it each document of a row is computed by itself: the same loss, if none leaks. For
    one process: ranks have different numbers of documents, and would wait for each other."""
    seed: int = 0


@dataclass
class OptimConfig:
    lr: float = 1e-4
    weight_decay: float = 0.0
    decay: str = "matrices"
    """What decays: matrices (no norms, biases or one-dimensional tensors), or all."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them as they are."""
    warmup_steps: int = 0
    aux_loss_coef: float = 0.0
    """Of the loss that balances the load of experts."""
    router_bias_rate: float = 0.0
    """By how much a step moves the correction bias of an expert, where its router has one."""


@dataclass
class LayoutConfig:
    dp_shard: int = 1
    """Data-parallel shards."""
    cp: int = 1
    """Ranks that share each sequence."""
    ep: int = 1
    """Ranks that the experts are split over."""

    @property
    def world_size(self) -> int:
        return self.dp_shard * self.cp


@dataclass
class MemoryConfig:
    compile: bool = False
    """Compile every decoder layer."""
    compile_backend: str | None = None
    """eager, aot_eager or inductor; by default inductor, and on a CPU the fastest that will do."""
    fullgraph: bool = False
    """A graph break is an error."""
    ac: str = "none"
    """Activation checkpointing: none, full or selective."""
    act_offload: bool = False
    """Keep saved activations on the CPU between forward and backward."""
    optim_offload: bool = False
    """Keep optimizer states on the CPU between steps."""
    full_offload: bool = False
    """Keep parameters, gradients and optimizer states on the CPU."""
    ep_backend: str = "all_to_all"
    """How tokens reach their experts: all_to_all or deepep."""


@dataclass
class CheckpointConfig:
    save_at: list[int] = field(default_factory=list)
    """Steps after which everything is saved, under `output_dir`/checkpoints/step_N."""
    resume_from: str | None = None
    """A saved checkpoint's folder to go on from."""
    export_at: list[int] = field(default_factory=list)
    """Steps after which the model is written as a Hugging Face checkpoint, under
    `output_dir`/exports/step_N."""


@dataclass
class ResumeConfig:
    allow: list[str] = field(default_factory=list)
    """Settings that may be others than the checkpoint's when resuming, such as optim.lr."""


@dataclass
class ChoicesConfig:
    keep: bool = False
    """Keep which experts and keys were picked where scores are close, in `output_dir`/choices."""
    replay: str | None = None
    """The choices folder of another run, to pick as it did where its scores tie."""
    below: float = 0.0
    """Scores tie whose difference is a smaller share of the largest; at most 1e-3."""


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    layout: LayoutConfig = field(default_factory=LayoutConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    resume: ResumeConfig = field(default_factory=ResumeConfig)
    choices: ChoicesConfig = field(default_factory=ChoicesConfig)
    steps: int = 5
    seed: int = 0
    output_dir: str = "output"
    profile_step: int = 0
    """A step of which the operators are counted, on the first rank; 0 for none."""
    fault: str | None = None
    """A fault to plant, name[:strength]; `python -m sft.faults` lists them."""


SCHEMA = OmegaConf.structured(Config)  # expensive to make; `merge` copies it


def load(path: Path) -> Config:
    """Read and check a configuration file; raises `ConfigError`."""
    return parse(read(path), str(path))


def read(path: Path) -> object:
    """The JSON value in a file; raises `ConfigError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None


def parse(asked: object, source: str) -> Config:
    """Check what `source` holds; raises `ConfigError`."""
    loaded = typed(SCHEMA, asked, source)
    assert isinstance(loaded, Config)
    check(loaded)
    return loaded


def typed(schema: DictConfig, asked: object, source: str) -> Any:
    """JSON values as the schema's dataclass; raises `ConfigError` for an unknown key or type."""
    if not isinstance(asked, dict):
        raise ConfigError(f"{source} is no JSON object; see sft/config.py for its keys")
    try:
        return OmegaConf.to_object(OmegaConf.merge(schema, asked))
    except OmegaConfBaseException as error:
        raise ConfigError(
            f"{source}: {str(error).splitlines()[0]} (key {error.full_key!r})"
        ) from None


def check(config: Config) -> None:
    """Reject what could not run whatever the model is; raises `ConfigError`."""
    layout, data = config.layout, config.data
    for name, value in (
        ("layout.dp_shard", layout.dp_shard),
        ("layout.cp", layout.cp),
        ("layout.ep", layout.ep),
        ("data.seq_len", data.seq_len),
        ("data.global_batch", data.global_batch),
        ("data.micro_batch", data.micro_batch),
        ("steps", config.steps),
    ):
        if value < 1:
            raise ConfigError(f"{name}={value} must be 1 or more")
    check_memory(config.memory, layout, config.model.dtype)
    check_ranges(config)
    check_kernels(config.model)
    if config.model.dtype not in DTYPES:
        raise ConfigError(f"model.dtype={config.model.dtype} must be one of {', '.join(DTYPES)}")
    if data.seq_len % layout.cp:
        fits = -(-data.seq_len // layout.cp) * layout.cp
        raise ConfigError(
            f"data.seq_len={data.seq_len} does not divide by layout.cp={layout.cp}; use {fits}"
        )
    rows = layout.dp_shard * data.micro_batch
    if data.global_batch % rows:
        raise ConfigError(
            f"data.global_batch={data.global_batch} does not divide by layout.dp_shard x "
            f"data.micro_batch={rows}; use {-(-data.global_batch // rows) * rows}"
        )
    if layout.world_size % layout.ep:
        raise ConfigError(
            f"layout.ep={layout.ep} does not divide the world size {layout.world_size} "
            f"(layout.dp_shard x layout.cp)"
        )


def check_ranges(config: Config) -> None:
    """Reject numbers that mean nothing; raises `ConfigError`."""
    if not 0 <= config.model.attention_dropout < 1:
        raise ConfigError(
            f"model.attention_dropout={config.model.attention_dropout} must be 0 or more, below 1"
        )
    if config.optim.decay not in DECAY:
        raise ConfigError(f"optim.decay={config.optim.decay} must be one of {', '.join(DECAY)}")
    numbers = {f"optim.{name}": x for name, x in vars(config.optim).items() if name != "decay"}
    for name, value in (numbers | {"seed": config.seed, "data.seed": config.data.seed}).items():
        if not value >= 0:  # NaN is not
            raise ConfigError(f"{name}={value} must be 0 or more")
    if not 0 <= config.choices.below <= WIDEST_TIE:
        raise ConfigError(
            f"choices.below={config.choices.below} must be 0 or more, at most {WIDEST_TIE}"
        )
    for name in ("save_at", "export_at"):
        for step in getattr(config.checkpoint, name):
            if not 1 <= step <= config.steps:
                raise ConfigError(
                    f"checkpoint.{name}={step} is none of the steps from 1 to steps={config.steps}"
                )
    if not config.data.packed and config.layout.world_size > 1:
        raise UnfitError(
            "data.packed=false computes documents one by one, of which ranks have different "
            "numbers; use layout.dp_shard=1 and layout.cp=1"
        )


def check_kernels(model: ModelConfig) -> None:
    """Reject kernels that there are not, or that cannot do what is asked; raises `ConfigError`."""
    for key, choices in (("attention", ATTENTION), ("linear_attention", LINEAR_ATTENTION)):
        if (chosen := getattr(model, key)) not in choices:
            raise ConfigError(f"model.{key}={chosen} must be one of {', '.join(choices)}")
    if model.attention == "flex" and model.attention_dropout:
        raise UnfitError(
            f"model.attention_dropout={model.attention_dropout}: FlexAttention drops nothing; "
            "use model.attention=sdpa"
        )
    if model.linear_attention == "fla" and find_spec("fla") is None:
        raise UnfitError(
            "model.linear_attention=fla needs the package flash-linear-attention; install it "
            "(pip install flash-linear-attention) or use torch"
        )


def check_memory(memory: MemoryConfig, layout: LayoutConfig, dtype: str) -> None:
    """Reject memory features that would do nothing or could not run; raises `ConfigError`."""
    if memory.ac not in CHECKPOINTING:
        raise ConfigError(f"memory.ac={memory.ac} must be one of {', '.join(CHECKPOINTING)}")
    if memory.ep_backend not in EP_BACKENDS:
        raise ConfigError(
            f"memory.ep_backend={memory.ep_backend} must be one of {', '.join(EP_BACKENDS)}"
        )
    check_compile(memory)
    if memory.full_offload and layout.world_size == 1:
        raise UnfitError(
            "memory.full_offload needs parameters sharded over ranks; use layout.dp_shard=2"
        )
    if memory.ep_backend == "deepep":
        check_deepep(layout, dtype)


def check_compile(memory: MemoryConfig) -> None:
    """Reject compiling that would do nothing; raises `ConfigError`."""
    chosen = memory.compile_backend
    for key, value in (("fullgraph", memory.fullgraph), ("compile_backend", chosen)):
        if value and not memory.compile:
            raise ConfigError(f"memory.{key} is about compiled layers; set memory.compile as well")
    if chosen is not None and chosen not in COMPILE_BACKENDS:
        choices = ", ".join(COMPILE_BACKENDS)
        raise ConfigError(f"memory.compile_backend={chosen} must be one of {choices}")
    if chosen == "eager" and memory.ac == "selective":
        raise ConfigError(
            "memory.compile_backend=eager keeps nothing for memory.ac=selective; use aot_eager"
        )


def check_deepep(layout: LayoutConfig, dtype: str) -> None:
    """Whether tokens could reach experts through DeepEP here; raises `ConfigError`."""
    if find_spec("deep_ep") is None:
        raise UnfitError(
            "memory.ep_backend=deepep needs the deep_ep package (github.com/deepseek-ai/DeepEP); "
            "install it or use all_to_all"
        )
    if layout.ep == 1:
        raise UnfitError("memory.ep_backend=deepep needs layout.ep of 2 or more; use all_to_all")
    if dtype != "bfloat16":
        raise UnfitError("memory.ep_backend=deepep moves bfloat16 only; use model.dtype=bfloat16")
