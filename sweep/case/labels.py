"""A case: one combination, resolved; what every step after planning is about."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, fields, is_dataclass, replace
from enum import Enum
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict

from sweep.case import bounds
from sweep.case.machine import Machine
from sweep.errors import RequestError
from sweep.schema import Device, LayoutConf, Settings, trainer_confs

ROW_TOKENS = {"nano": 512, "tiny": 2048}


class Case(BaseModel):
    """The labels of a case, as they appear on disk, in MLflow and in reports."""

    model_config = ConfigDict(frozen=True)

    id: str
    arch: str
    layout: str
    feature: str
    trainer: str
    scale: str
    device: str
    dtype: str
    seed: int
    steps: int
    world_size: int
    fault: str | None = None  # planted, to see what catches it

    @classmethod
    def of_id(cls, case_id: str) -> Case:
        """The labels that an id tells; the others are unknown."""
        arch, layout, feature = (*case_id.split("-", 2), "", "")[:3]
        return cls(id=case_id, arch=arch, layout=layout, feature=feature, trainer="unknown",
                   scale="unknown", device="unknown", dtype="unknown", seed=0, steps=0,
                   world_size=0)  # fmt: skip

    @property
    def variation(self) -> str:
        """What its id says beyond arch, layout and feature: empty, or for instance `-seed_1`."""
        named = f"{self.arch}-{self.layout}-{self.feature}{fault_suffix(self.fault)}"
        return self.id.removeprefix(named)

    @property
    def clean_id(self) -> str:
        """The id of the same case without the fault planted in it."""
        return f"{self.arch}-{self.layout}-{self.feature}{self.variation}"


def layout_name(layout: LayoutConf) -> str:
    """`single`, `fsdp4_ep4`, `cp4_ep1`, `dp2_cp2_ep4`: a layout is named by its degrees."""
    if layout.world_size == 1:
        return "single"
    if layout.cp == 1:
        degrees = f"fsdp{layout.dp_shard}"
    elif layout.dp_shard == 1:
        degrees = f"cp{layout.cp}"
    else:
        degrees = f"dp{layout.dp_shard}_cp{layout.cp}"
    nodes = f"_n{layout.nodes}" if layout.nodes > 1 else ""
    return f"{degrees}_ep{layout.ep}{nodes}"


def layout_named(name: str) -> LayoutConf | None:
    """The layout of several ranks that has this name; None if it is no such name."""
    match = re.fullmatch(r"(?:fsdp(\d+)|cp(\d+)|dp(\d+)_cp(\d+))_ep(\d+)(?:_n(\d+))?", name)
    if match is None:
        return None
    fsdp, cp, dp, cp_of_dp, ep, nodes = (int(degree or 1) for degree in match.groups())
    shards, parts = fsdp * dp, cp * cp_of_dp
    layout = LayoutConf(shards * parts, shards, parts, ep, nodes)
    return layout if layout_name(layout) == name else None


def settings_of(config: DictConfig, machine: Machine) -> Settings:
    """The composed config as dataclasses, with everything that is automatic decided."""
    if unknown := _unknown(config):
        raise RequestError(f"there is no setting {', '.join(unknown)}; --cfg job shows all")
    bare = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    values = cast(dict[str, Any], OmegaConf.to_object(bare))
    settings = Settings(**values)
    bounds.check(settings)
    if settings.device is Device.auto:
        settings.device = Device(machine.device)
    if settings.scale.name == "auto":
        settings.scale.name = "tiny" if settings.device is Device.cuda else "nano"
    if settings.scale.name not in ROW_TOKENS:
        raise RequestError(f"scale.name={settings.scale.name}: say auto, {', '.join(ROW_TOKENS)}")
    if settings.data.seq_len is None:
        settings.data.seq_len = ROW_TOKENS[settings.scale.name]
    settings.steps = max(settings.steps, settings.feature.min_steps or 1)
    if not settings.arch.moe:
        settings.layout = replace(settings.layout, ep=1)
    bounds.check_data(settings)
    return settings


def _unknown(config: DictConfig, within: str = "") -> list[str]:
    """The keys that +key=value added to what the schema describes in full; Hydra's part is open."""
    schema = OmegaConf.get_type(config)
    if not is_dataclass(schema):
        return []
    names = {field.name for field in fields(schema)}
    keys = {str(key) for key in config} - ({"hydra"} if not within else set())
    unknown = [f"{within}{key}" for key in keys - names]
    for key in keys & names:
        if isinstance(child := config._get_node(key), DictConfig) and not child._is_none():
            unknown += _unknown(child, f"{within}{key}.")
    return sorted(unknown)


def case_of(settings: Settings, suffix: str = "") -> Case:
    """A case's labels; `suffix` distinguishes cases with the same arch, layout and feature."""
    layout = layout_name(settings.layout)
    return Case(
        id=f"{settings.arch.name}-{layout}-{settings.feature.name}"
        f"{fault_suffix(settings.fault)}{suffix}",
        arch=settings.arch.name,
        layout=layout,
        feature=settings.feature.name,
        trainer=settings.trainer.name,
        scale=settings.scale.name,
        device=settings.device.value,
        dtype=settings.dtype.value,
        seed=settings.seed,
        steps=settings.steps,
        world_size=settings.layout.world_size,
        fault=settings.fault,
    )


def fault_suffix(fault: str | None) -> str:
    """What a case's id says of a planted fault: empty, or `-fault_ep_grad_scaled_2`."""
    return "" if fault is None else "-" + slug(f"fault_{fault.replace(':', '_')}", limit=60)


def slug(text: str, limit: int = 40) -> str:
    """`text` as a part of a file name; with a hash of all of it if something had to change."""
    safe = re.sub(r"[^A-Za-z0-9_.+-]+", "_", text)
    if safe == text and len(text) <= limit:
        return text
    return f"{safe[:limit]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as JSON values."""
    values: dict[str, Any] = _plain(asdict(settings))
    return values


def restored(values: dict[str, Any]) -> Settings:
    """Settings from what `plain` made of them."""
    config = OmegaConf.structured(Settings)
    config.trainer = OmegaConf.structured(trainer_confs()[values["trainer"]["adapter"]])
    return cast(Settings, OmegaConf.to_object(OmegaConf.merge(config, values)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value
