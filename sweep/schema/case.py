"""What a case is made of, apart from its trainer: arch, layout, feature, data, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

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


class Attention(Enum):
    """The kernel of softmax attention."""

    sdpa = "sdpa"  # torch's scaled dot product attention
    flex = "flex"  # torch's FlexAttention


class LinearAttention(Enum):
    """What computes gated delta nets."""

    torch = "torch"  # torch's own operators
    fla = "fla"  # flash-linear-attention's kernels


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
    delta_net: bool = False  # some layers are gated delta nets


@dataclass
class LayoutConf:
    """Degrees of parallelism; world_size = dp_shard * cp, and ep splits the same ranks."""

    world_size: int = MISSING
    dp_shard: int = MISSING
    cp: int = MISSING
    ep: int = MISSING
    nodes: int = 1

    @property
    def ranks_per_node(self) -> int:
        """How many ranks run on each of its nodes."""
        return self.world_size // self.nodes


@dataclass
class FeatureConf:
    """Memory features in words that no trainer owns: an adapter translates them."""

    name: str = MISSING
    compile: bool = False
    compile_backend: str | None = None  # the trainer's own choice
    fullgraph: bool = False
    ac: ActivationCheckpointing = ActivationCheckpointing.none
    act_offload: bool = False
    optim_offload: bool = False
    full_offload: bool = False
    ep_backend: ExpertDispatch = ExpertDispatch.all_to_all
    attention: Attention = Attention.sdpa
    linear_attention: LinearAttention = LinearAttention.torch
    packed: bool = True  # false: each document of a row is computed by itself
    # save after each of these steps, and go on from there in fresh processes, one after another
    resume_at: list[int] = field(default_factory=list)
    min_steps: int | None = None  # the case trains at least so many


@dataclass
class ScaleConf:
    """Size of the tiny checkpoint: `nano`, `tiny`, or `auto` (nano without a GPU)."""

    name: str = MISSING


@dataclass
class DataConf:
    """The training data: packed chat documents, the same global batch in every layout."""

    seq_len: int | None = None  # tokens a row; 512 at nano, 2048 at tiny, whose indexers keep more
    global_batch: int = 4
    micro_batch: int = 1
    seed: int = 0


class Decay(Enum):
    """What weight decay applies to. `matrices`: no norms, biases or one-dimensional tensors."""

    matrices = "matrices"
    all = "all"


@dataclass
class OptimConf:
    """AdamW. At a learning rate of 1e-6 a few steps barely move the weights."""

    lr: float = 1e-4
    weight_decay: float = 0.0
    decay: Decay = Decay.matrices
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    aux_loss_coef: float = 0.0  # of the loss that balances the load of experts
    router_bias_rate: float = 0.0  # by how much a step moves the routers' correction biases


@dataclass
class NoiseConf:
    """How often a case is run again, to measure by how much its figures differ from run to run."""

    repeats: int = 2  # of a case that resumes, at most; a repeat equal to the bit is the last
    parity: bool = False  # every other case is run again as well


@dataclass
class ReplayConf:
    """Whose choices a case's last launch replays, and where scores tie; the sweep sets it."""

    case_id: str | None = None
    below: float = 0.0


class NotifyForm(Enum):
    """What a webhook takes; `auto`: Slack's form for Slack's own host, else plain JSON."""

    auto = "auto"
    slack = "slack"
    json = "json"


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
    retries: int = 0  # how often a failed case runs once more; one that then passes is `flaky`
    stop_after_alike: int | None = None  # the sweep ends once so many cases failed alike
