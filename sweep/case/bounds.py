"""What a case's settings may be: whatever no trainer could run is said before any time is spent."""

from __future__ import annotations

import math
import re
from operator import attrgetter

from sweep.errors import RequestError
from sweep.schema import Settings

# key -> the least value and, if any, the first that is too large. Counts fit into 31 bits: more is
# a slip of the keyboard, and libraries fail late and oddly on it.
COUNT = 2**31
RANGES: dict[str, tuple[float, float]] = {
    "steps": (1, COUNT),
    "seed": (0, 2**63),
    "attention_dropout": (0, 1),
    "profile_step": (0, COUNT),
    "data.seq_len": (1, COUNT),
    "data.global_batch": (1, COUNT),
    "data.micro_batch": (1, COUNT),
    "data.seed": (0, 2**63),
    "optim.lr": (0, math.inf),
    "optim.weight_decay": (0, math.inf),
    "optim.warmup_steps": (0, COUNT),
    "optim.aux_loss_coef": (0, math.inf),
    "optim.router_bias_rate": (0, math.inf),
    "feature.min_steps": (1, COUNT),
    "noise.repeats": (0, 10),
    "launch.slots": (1, COUNT),
    "launch.cases_per_gpu": (1, COUNT),
    "launch.retries": (0, 11),
    "launch.stop_after_alike": (1, COUNT),
}
ABOVE_ZERO = ("optim.max_grad_norm", "launch.timeout_seconds")
NAMES = ("arch", "feature", "trainer", "scale")  # a layout is named by its degrees
NAME = r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*"


def check(settings: Settings) -> None:
    """Raise RequestError for what cannot be run; nothing that is automatic is decided yet."""
    _check_names(settings)
    _check_layout(settings)
    _check_ranges(settings)
    _check_contradictions(settings)
    _check_resume(settings)


def check_data(settings: Settings) -> None:
    """Raise RequestError where ranks cannot share the batch; every value is decided."""
    layout, data = settings.layout, settings.data
    rows = layout.dp_shard * data.micro_batch
    if data.global_batch % rows:
        raise RequestError(
            f"data.global_batch={data.global_batch} in a layout with dp_shard={layout.dp_shard}:"
            f" say a multiple of dp_shard times data.micro_batch, {rows}"
        )
    if (data.seq_len or 0) % layout.cp:
        raise RequestError(
            f"data.seq_len={data.seq_len} in a layout with cp={layout.cp}: say a multiple of that"
        )


def _check_names(settings: Settings) -> None:
    """They are parts of folders' names."""
    for group in NAMES:
        name = getattr(settings, group).name
        if not re.fullmatch(NAME, name):
            raise RequestError(f"{group}.name={name}: say letters, digits and _ . + - alone")


def _check_ranges(settings: Settings) -> None:
    for key, (least, beyond) in RANGES.items():
        value = attrgetter(key)(settings)
        if value is not None and not least <= value < beyond:
            below = f" and below {beyond:.10g}" if math.isfinite(beyond) else ", and finite"
            raise RequestError(f"{key}={value}: say {least:g} or more{below}")
    for key in ABOVE_ZERO:
        value = attrgetter(key)(settings)
        if not 0 < value < math.inf:
            raise RequestError(f"{key}={value}: say above 0, and finite")


def _check_contradictions(settings: Settings) -> None:
    if not settings.outputs:
        raise RequestError("outputs=: say a folder, as in outputs=outputs")
    feature = settings.feature
    for key in ("fullgraph", "compile_backend"):
        if (value := getattr(feature, key)) and not feature.compile:
            raise RequestError(f"feature.{key}={value} without feature.compile=true does nothing")
    if settings.profile_step > settings.steps:
        said = f"profile_step={settings.profile_step}: the case has {settings.steps} steps"
        raise RequestError(f"{said}; name one of them")


def _check_layout(settings: Settings) -> None:
    layout = settings.layout
    where = f"layout with dp_shard={layout.dp_shard} cp={layout.cp} ep={layout.ep}"
    if min(layout.dp_shard, layout.cp, layout.ep, layout.nodes) < 1:
        raise RequestError(f"{where} nodes={layout.nodes}: every degree is at least 1")
    if layout.world_size != layout.dp_shard * layout.cp:
        raise RequestError(f"{where}: world_size is {layout.world_size}, not dp_shard times cp")
    if layout.world_size % layout.ep or layout.world_size % layout.nodes:
        raise RequestError(f"{where}: ep and nodes must divide world_size {layout.world_size}")


def _check_resume(settings: Settings) -> None:
    last = max(settings.steps, settings.feature.min_steps or 1)
    resume_at = settings.feature.resume_at
    if resume_at != sorted(set(resume_at)) or not all(1 <= step < last for step in resume_at):
        raise RequestError(
            f"feature.resume_at={resume_at}: say rising steps before the last, {last}"
        )
