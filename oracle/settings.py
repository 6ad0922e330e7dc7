"""How a trainer defines what it reports: definitions only, no result of a run."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from oracle.errors import OracleError

CHOICES = {
    "dtype": ("float32", "bfloat16"),
    "warmup": ("from_one", "from_zero"),
    "decay": ("all", "matrices", "no_norms_no_biases"),
    "order": ("none", "rows"),
}
GROUPS = [
    ["experts", r"\.experts\."],
    ["router", r"\.(gate|router|mlp\.gate)\.|\.gate$|correction_bias"],
    ["norm", r"norm"],
    ["embedding", r"embed|ngram|\.ple\."],
    ["head", r"lm_head"],
    ["attention", r"attn|attention|mixer|linear"],
    ["mlp", r""],
]


@dataclass(frozen=True)
class Settings:
    """Of a training run; docs/oracle.md has the formula that each belongs to."""

    dtype: str = "float32"
    """What the trainer rounds the checkpoint's weights to. The oracle computes in float32."""
    lr: float = 1e-4
    warmup_steps: int = 0
    warmup: str = "from_one"
    """Step n of w warm-up steps has lr * n / (w + 1), or from_zero: lr * (n - 1) / w."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decay: str = "all"
    """What decays: all; matrices (two dimensions or more, neither norm nor bias in the name); or
    no_norms_no_biases (transformers' Trainer: by name)."""
    max_grad_norm: float | None = 1.0
    """Gradients are scaled down to this norm; null or 0 leaves them."""
    aux_loss_coef: float = 0.0
    router_bias_rate: float = 0.0
    groups: list[list[str]] = field(default_factory=lambda: GROUPS)
    """[name, regular expression]: a parameter is in the first group that its name matches."""
    source: str | None = None
    """JSON lines of chats that the documents come from, to compare the data as well."""
    max_length: int | None = None
    """Documents of the source are cut after so many tokens."""
    order: str = "none"
    """rows: the documents of a row follow each other in the source."""


def read(path: Path) -> Settings:
    """A JSON object of settings; raises `OracleError`."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OracleError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise OracleError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise OracleError(f'{path} is not a JSON object, as {{"lr": 1e-4}}')
    return checked(values, str(path))


def checked(values: dict[str, Any], where: str) -> Settings:
    """Settings from JSON values; raises `OracleError` for what they cannot be."""
    types = get_type_hints(Settings)
    for key, value in values.items():
        if key not in types:
            raise OracleError(f"{where}: no setting {key!r}; there are {', '.join(types)}")
        if key in CHOICES and value not in CHOICES[key]:
            raise OracleError(f"{where}: {key}={value}: choose from {', '.join(CHOICES[key])}")
        if key != "groups" and not _fits(value, types[key]):
            raise OracleError(f"{where}: {key}={value!r} is of the wrong type or negative")
    _check_groups(values.get("groups", GROUPS), where)
    return Settings(**values)


def plain(settings: Settings) -> dict[str, Any]:
    """As JSON."""
    return dataclasses.asdict(settings)


def _fits(value: Any, annotation: Any) -> bool:
    kinds = get_args(annotation) or (annotation,)
    if isinstance(value, bool):
        return False
    if isinstance(value, (int, float)) and (float in kinds or isinstance(value, int)):
        return (float in kinds or int in kinds) and 0 <= value < float("inf")
    return isinstance(value, kinds)


def _check_groups(groups: Any, where: str) -> None:
    try:
        for name, pattern in groups:
            re.compile(pattern)
            str.__len__(name)
    except (TypeError, ValueError, re.error) as error:
        raise OracleError(f"{where}: groups is a list of [name, pattern]: {error}") from None
