"""Train every architecture in every layout and compare with one process.

python scripts/parity_table.py                      # all of them, into docs/parity.md
python scripts/parity_table.py qwen3_moe gpt_oss    # some, to the terminal
"""

from __future__ import annotations

import argparse
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import tiny_models
from sft.warm import launch
from sweep.case.labels import Case, layout_name
from sweep.checks import thresholds
from sweep.files import conf_dir
from sweep.schema import LayoutConf

Records = list[dict[str, Any]]
STEPS = 5
LAYOUTS = ("single", "fsdp4_ep4", "cp4_ep4", "fsdp2_ep2", "cp2_ep2", "dp2_cp2_ep4")
EVERYWHERE = ("fsdp4_ep4", "cp4_ep4")
IN_ALL_LAYOUTS = ("qwen3_moe", "gpt_oss", "nemotron_h", "qwen3_5_moe")
ORDERS = 3
FIGURES = ("loss", "grad_norm", "loss_after_choice")
INTRODUCTION = """\
# Parity: every layout computes what one process computes

Largest relative difference from `single` over {steps} steps, fp32, CPU with gloo, `nano`
checkpoints, {versions}. Made by `python scripts/parity_table.py`; asserted by
`tests/sft/test_parity.py` with the bounds of the check `parity`: losses {limit:g}.
Gradient norms of qwen4_exp have {kinked:g} ({embeddings:g} for its embeddings):
the gate of its n-gram layer is the root of |g|, no less than
1e-6, whose slope falls from 500 to 0 there, and a gate that rounding moves over that kink changes
the gradients before it. Its losses keep the bound.

A choice between two experts, or two keys of an indexer, that score the same but for the last digit
can fall differently in another layout. Training is another from there on, so only the steps before
are compared; the last column names the step, and how far the losses are apart after it (at most
{after:g}). `choices_fingerprint` in the metrics tells such a step from a fault.

{table}
"""
DOC = Path(__file__).parent.parent / "docs" / "parity.md"


@dataclass(frozen=True)
class Difference:
    """The largest relative differences from `single` over the steps that made the same choices."""

    arch: str
    layout: str
    loss: float
    grad_norm: float
    groups: dict[str, float]
    """Gradient norms by parameter group."""
    same_choices: int = STEPS
    """Steps before a token's expert, or an indexer's pick, fell differently on rounding alone."""
    loss_after: float = 0.0
    """The largest difference of a loss from there on."""

    @property
    def worst_group(self) -> str:
        return max(self.groups, key=self.groups.__getitem__)

    def beyond(self) -> list[str]:
        """The figures that differ by more than they may."""
        figures = {"loss": self.loss, "grad_norm": self.grad_norm, **self.groups}
        return [name for name, value in figures.items() if value > limit(self.arch, name)]


def limit(arch: str, figure: str) -> float:
    """How far a figure may be from one process's: what the check `parity` allows."""
    named = figure if figure in FIGURES else f"grad_norm_{figure}"
    case = Case(
        id=arch, arch=arch, layout="", feature="none", trainer="sft", scale="nano", device="cpu",
        dtype="float32", seed=0, steps=STEPS, world_size=1,
    )  # fmt: skip
    return thresholds.of_case("parity", (named, "grad_norm"), case).value


def limit_after() -> float:
    """How far a loss may be once a choice fell differently."""
    return limit("", "loss_after_choice")


def layouts_of(arch: str) -> tuple[str, ...]:
    return LAYOUTS[1:] if arch in IN_ALL_LAYOUTS else EVERYWHERE


def layout_of(arch: str, layout: str) -> LayoutConf:
    """The layout as that architecture runs it: a dense one has no experts to split."""
    found = LayoutConf(**OmegaConf.load(conf_dir() / "layout" / f"{layout}.yaml"))
    is_moe = OmegaConf.load(conf_dir() / "arch" / f"{arch}.yaml").moe
    return found if is_moe else replace(found, ep=1)


def train(arch: str, layout: str, folder: Path, seed: int = 0) -> Records:
    """The metrics of a few steps of a `nano` checkpoint in fp32, on the data in a seed's order."""
    degrees = layout_of(arch, layout)
    return launch.train(
        folder / f"{arch}-{layout}-{seed}",
        model={"path": str(tiny_models.ensure(arch, "nano", 0))},
        layout={"dp_shard": degrees.dp_shard, "cp": degrees.cp, "ep": degrees.ep},
        data={"seed": seed},
        steps=STEPS,
    )


def relative(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), 1e-30)


def choices(record: dict[str, Any]) -> float:
    """What identifies the step's choices of experts and keys, over all ranks."""
    return float(sum(record["counters"].get("choices_fingerprint", [])))


def difference(arch: str, layout: str, records: Records, single: Records) -> Difference:
    """How far a layout's losses and gradient norms are from one process's, on the same batches."""
    every = list(zip(records, single, strict=True))
    assert len(every) == STEPS
    for ours, theirs in every:
        assert ours["global_batch_digest"] == theirs["global_batch_digest"], "different batches"
        assert ours.get("buffers_digest") == theirs.get("buffers_digest"), "different buffers"
    pairs = list(itertools.takewhile(lambda pair: choices(pair[0]) == choices(pair[1]), every))
    if not pairs:
        raise AnotherChoiceError(f"{arch}-{layout}: other experts or keys at the first step")
    groups = {
        group: max(
            relative(a["grad_norm_groups"][group], b["grad_norm_groups"][group]) for a, b in pairs
        )
        for group in single[0]["grad_norm_groups"]
    }
    return Difference(
        arch,
        layout,
        max(relative(a["loss"], b["loss"]) for a, b in pairs),
        max(relative(a["grad_norm"], b["grad_norm"]) for a, b in pairs),
        groups,
        len(pairs),
        max((relative(a["loss"], b["loss"]) for a, b in every[len(pairs) :]), default=0.0),
    )


class AnotherChoiceError(AssertionError):
    """A choice fell differently at the first step: there is nothing to compare."""


def compare(arch: str, folder: Path) -> Iterator[Difference]:
    """Every layout of an architecture against one process.

    A tie that rounding decides at the first step is rare, on one order of the data; a fault in a
    forward pass changes choices on every one.
    """
    single = functools.cache(functools.partial(train, arch, "single", folder))
    for layout in layouts_of(arch):
        yield first_comparable(
            lambda seed, layout=layout: difference(
                arch, layout, train(arch, layout, folder, seed), single(seed)
            )
        )


def first_comparable(on_data: Callable[[int], Difference]) -> Difference:
    """The difference on the first order of the data whose first step made the same choices."""
    for seed in range(ORDERS - 1):
        try:
            return on_data(seed)
        except AnotherChoiceError as chosen:
            print(chosen, f"on the data of seed {seed}", flush=True)
    return on_data(ORDERS - 1)


def case_id(row: Difference) -> str:
    return f"{row.arch}-{layout_name(layout_of(row.arch, row.layout))}"


def another_choice(row: Difference) -> str:
    """From which step on a choice differs, and how far the losses are apart from there."""
    if row.same_choices == STEPS:
        return "none"
    return f"from step {row.same_choices + 1}: loss {row.loss_after:.1e}"


def table(rows: list[Difference]) -> str:
    lines = [
        "| case | loss | grad norm | worst group | its grad norm | another choice |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {case_id(row)} | {row.loss:.1e} | {row.grad_norm:.1e} | {row.worst_group} "
        f"| {row.groups[row.worst_group]:.1e} | {another_choice(row)} |"
        for row in rows
    ]
    return "\n".join(lines)


def page(rows: list[Difference]) -> str:
    return INTRODUCTION.format(
        steps=STEPS,
        versions=", ".join(f"{name} {version(name)}" for name in ("torch", "transformers")),
        limit=limit("", "loss"),
        kinked=limit("qwen4_exp", "grad_norm"),
        embeddings=limit("qwen4_exp", "embedding"),
        after=limit_after(),
        table=table(rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arch", nargs="*")
    asked = parser.parse_args().arch
    archs = asked or tiny_models.names()
    launch.preload()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for arch in archs:
            for row in compare(arch, Path(folder)):
                print(row, flush=True)
                rows.append(row)
    if asked:
        print(table(rows))
    else:
        DOC.write_text(page(rows))


if __name__ == "__main__":
    main()
