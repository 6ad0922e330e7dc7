"""Load a checkpoint, sharded: FSDP2 and expert parallelism are transformers' own."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.distributed import DistributedConfig

from sft import kernels, tables
from sft.config import Config, LayoutConfig, MemoryConfig
from sft.context import attention, choices
from sft.context.install import install
from sft.errors import ConfigError
from sft.memory import offloading
from sft.moe import biases, experts, routing
from sft.tied import share_buffers

HEADS = (
    "num_attention_heads",
    "num_attention_heads_per_layer",
    "linear_num_value_heads",
    "mamba_num_heads",
)
"""Keys of a model's configuration that context parallelism must divide; fewer keys are repeated."""


def load(config: Config) -> PreTrainedModel:
    """The checkpoint's model on this rank, in training mode; raises `ConfigError`."""
    path = Path(config.model.path)
    published = read_config(path)
    check_fits(published, config.layout)
    attention.register()
    ep_implementation(config.memory).register()
    with offloading.pinned_where_possible(), biases.kept_in_float32(), readable(path):
        check_holders(published, config.layout, path)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=attention.NAMES[config.model.attention],
            # the plain loop over experts breaks the compiler's graph six times a layer
            experts_implementation="grouped_mm" if expert_count(published) else None,
            distributed_config=distributed_config(config),
            local_files_only=True,
            output_loading_info=True,
            **dropout(published, config.model.attention_dropout),
        )
    check_whole(report["missing_keys"], path)
    if config.memory.full_offload:
        model.to("cpu")  # transformers loads onto the accelerator; FSDP fetches from here
    freeze_indexers(model)
    one_dtype_a_group(model)
    tables.reload(model, path)
    layers = {kind for kind, replaced in install(model).items() if replaced}
    kernels.check_model(config.model, published.model_type, layers)
    routing.watch(model)
    choices.watch_experts(model)
    share_buffers(model)
    return model.train()


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Loading from a checkpoint; `ConfigError` where one of its files is damaged."""
    try:
        yield
    except SafetensorError as error:
        raise ConfigError(f"model.path={path} is damaged: {error}; write it again") from None


def check_whole(missing: Collection[str], path: Path) -> None:
    """Refuse a checkpoint that lacks tensors, which transformers draws anew with a warning."""
    if missing:
        raise ConfigError(
            f"model.path={path} lacks {len(missing)} tensors of the model, as {min(missing)}; "
            "write it again"
        )


def freeze_indexers(model: nn.Module) -> None:
    """Freeze what picks keys, which no gradient reaches: what is trained has one."""
    for name, parameter in model.named_parameters():
        if ".indexer." in name:
            parameter.requires_grad_(False)


def one_dtype_a_group(model: PreTrainedModel) -> None:
    """Cast parameters that FSDP would gather with others of another dtype, which it refuses to.

    transformers keeps some in float32 by name, in FSDP groups of their own where that is a whole
    module: not V4's sinks and position biases, which lie beside others, nor its final norm, which
    is gathered with the head. One process casts them as well, to compute the same.
    """
    modules = dict(model.named_modules())
    plan = model.fsdp_plan.items()
    tail = [
        modules[name] for name, style in plan if style == "keep_full_weight" and name in modules
    ]
    for members in (*([module] for module in modules.values()), tail):
        parameters = (parameter for member in members for parameter in member.parameters())
        if any(parameter.dtype == model.dtype for parameter in parameters):
            for member in members:
                cast_own(member, model.dtype)


def cast_own(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast a module's own parameters, without those of the modules in it."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        if parameter.dtype != dtype:
            data = parameter.data.to(dtype)
            setattr(module, name, nn.Parameter(data, parameter.requires_grad))


def dropout(model: PretrainedConfig, share: float) -> dict[str, float]:
    """What sets a model's attention dropout; raises `ConfigError` where it has none."""
    if share and not hasattr(model, "attention_dropout"):
        raise ConfigError(f"model.attention_dropout={share}: {model.model_type} has none; use 0")
    return {"attention_dropout": share} if share else {}


def ep_implementation(memory: MemoryConfig) -> ModuleType:
    """The module that brings tokens to their experts."""
    if memory.ep_backend == "deepep":
        from sft.moe import deepep

        return deepep
    return experts


def distributed_config(config: Config) -> DistributedConfig | None:
    """How transformers shards the model: parameters over every rank, experts over `ep`.

    Ranks that share a sequence hold different tokens, so to the parameters they are data-parallel.
    """
    layout = config.layout
    if layout.world_size == 1:
        return None
    return DistributedConfig(
        fsdp_size=layout.world_size,
        ep_size=layout.ep,
        ep_implementation=ep_implementation(config.memory).NAME,
        fsdp_mixed_precision=config.model.dtype == "bfloat16",
        fsdp_cpu_offload=config.memory.full_offload,
    )


def read_config(path: Path) -> PretrainedConfig:
    """The model configuration of a checkpoint folder; raises `ConfigError` where it is not one."""
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise ConfigError(
            f"model.path={path} is not a checkpoint folder: it needs config.json and *.safetensors"
        )
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True).get_text_config()
    except (ValueError, OSError) as error:
        raise ConfigError(f"model.path={path}: {str(error).splitlines()[0]}") from None


def check_fits(model: PretrainedConfig, layout: LayoutConfig) -> None:
    """Reject a layout that does not divide the model's heads or experts; raises `ConfigError`."""
    counts = head_counts(model)
    for key, heads in counts:
        if heads % layout.cp:
            fits = largest_divisor(math.gcd(*(heads for _, heads in counts)), layout.cp)
            raise ConfigError(
                f"layout.cp={layout.cp} does not divide the model's {key}={heads}; use {fits}"
            )
    count = expert_count(model)
    if layout.ep > 1 and not count:
        raise ConfigError(f"layout.ep={layout.ep}: {model.model_type} has no experts; use 1")
    if count % layout.ep:
        raise ConfigError(
            f"layout.ep={layout.ep} does not divide the model's {count} experts; "
            f"use {largest_divisor(count, layout.ep)}"
        )


def check_holders(model: PretrainedConfig, layout: LayoutConfig, path: Path) -> None:
    """Reject a layout in which a rank has no expert, where transformers cannot load it.

    It stacks the experts that a checkpoint has one by one, of which there must be some. Raises
    `ConfigError`.
    """
    count, world = expert_count(model), layout.world_size
    if not count or world == 1 or not is_by_expert(path):
        return
    fits = [
        ep
        for ep in range(1, min(world, count) + 1)
        if world % ep == count % ep == 0 and holders(count // ep, world // ep) == world // ep
    ]
    if layout.ep not in fits:
        degrees = " or ".join(map(str, fits)) or "fewer ranks"
        raise ConfigError(
            f"layout.ep={layout.ep} leaves one of {world} ranks without any of the model's {count} "
            f"experts; use {degrees}"
        )


def holders(count: int, ranks: int) -> int:
    """How many of the ranks that share `count` experts get one: all get as many but the last."""
    return -(-count // -(-count // ranks))


def is_by_expert(path: Path) -> bool:
    """Whether a checkpoint has its experts one by one."""
    for file in path.glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            if any(".experts.0." in key for key in opened.keys()):  # noqa: SIM118
                return True
    return False


def head_counts(model: PretrainedConfig) -> list[tuple[str, int]]:
    """The numbers of heads that ranks of a sequence share, by key; laguna has one a layer."""
    values = [(key, getattr(model, key, None) or []) for key in HEADS]
    return [
        (key, heads)
        for key, value in values
        for heads in (value if isinstance(value, list) else [value])
    ]


def expert_count(model: PretrainedConfig) -> int:
    """Routed experts a layer, 0 for a dense model."""
    keys = ("num_experts", "num_local_experts", "n_routed_experts")
    return next((count for key in keys if (count := getattr(model, key, None))), 0)


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` up to `limit`."""
    return next(n for n in range(limit, 0, -1) if number % n == 0)
