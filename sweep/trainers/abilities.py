"""What a trainer says that it can do, against what a case asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from sweep.case.labels import layout_name, plain
from sweep.errors import RequestError
from sweep.schema import Settings
from sweep.trainers.template import SWITCHES, text

FEATURES = (*SWITCHES, "resume_at")
OFF = plain(Settings())["feature"]


def asked_features(settings: Settings) -> dict[str, str]:
    """The keys of the feature file that are on, with their values."""
    feature = plain(settings)["feature"]
    asked = {key: feature[key] for key in FEATURES if feature[key] != OFF[key]}
    return {
        key: ",".join(map(str, value)) if isinstance(value, list) else text(value)
        for key, value in asked.items()
    }


def lacking(
    settings: Settings,
    archs: Sequence[str] | None,
    layouts: Sequence[str] | None,
    features: Sequence[str] | None,
) -> str | None:
    """What is not on the lists, as a reason; None if all is. A list that is None allows all.

    Archs and layouts are patterns on names (`fsdp*_ep1`), features keys of a feature file
    (`compile`, or with one value only, `ac=full`). Raises RequestError for a key that is none.
    """
    trainer = f"trainer={settings.trainer.name}"
    names = {"arch": settings.arch.name, "layout": layout_name(settings.layout)}
    for kind, allowed in (("arch", archs), ("layout", layouts)):
        if allowed is not None and not any(
            fnmatchcase(names[kind], feature) for feature in allowed
        ):
            return f"{trainer} does not run {kind} {names[kind]}: only {', '.join(allowed)}"
    if features is None:
        return None
    _check(features)
    for key, value in asked_features(settings).items():
        if key not in features and f"{key}={value}" not in features:
            able = ", ".join(features) or "none"
            return f"{trainer} cannot do feature.{key}={value} (its features: {able})"
    return None


def untold(settings: Settings, told: Callable[[str], bool] = lambda name: False) -> str | None:
    """What is asked for beyond layout and features, and not among what the trainer is `told`."""
    feature, decay = settings.feature, plain(settings)["optim"]["decay"]
    asked = {
        "fault": settings.fault,
        "attention_dropout": settings.attention_dropout,
        "profile_step": settings.profile_step,
        "packed": None if feature.packed else "false",
        "compile_backend": feature.compile_backend,
        "decay": None if decay == "matrices" else decay,
        "aux_loss_coef": settings.optim.aux_loss_coef,
        "router_bias_rate": settings.optim.router_bias_rate,
    }
    for name, value in asked.items():
        if value and not told(name):
            return f"trainer={settings.trainer.name} is not told of {name}={value}; trainer=sft is"
    return None


def _check(features: Sequence[str]) -> None:
    for feature in features:
        if feature.partition("=")[0] not in FEATURES:
            raise RequestError(f"trainer.features: {feature}: choose from {', '.join(FEATURES)}")
