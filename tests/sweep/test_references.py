"""A plan says what would be compared with nothing, and adds what it is compared with."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from sweep.case.planned import Planned
from sweep.checks import peers
from sweep.plan import listing, plan, references
from tests.sweep.commands import sweep
from tests.sweep.planning import CPU, composed


def planned(*combinations: str) -> list[Planned]:
    return plan([one.split() for one in combinations], composed, CPU)


def one(words: Sequence[str]) -> Planned:
    return plan([words], composed, CPU)[0]


def ids(cases: Sequence[Planned]) -> list[str]:
    return [case.case.id for case in cases]


def test_a_lone_case_is_named_with_what_to_add() -> None:
    cases = planned(
        "arch=llama layout=cp2_ep2 feature=none",
        "arch=qwen3 layout=cp2_ep2 feature=none",
        "arch=qwen3 layout=single feature=none",
    )
    out = io.StringIO()
    listing.show(cases, dict.fromkeys(ids(cases), 1.0), lambda _: (1.0, 1), Console(file=out))
    said = " ".join(out.getvalue().split())
    assert "compared with nothing (add another layout or feature, or references=true):" in said
    assert said.partition("references=true): ")[2].startswith("llama-cp2_ep1-none 3 cases")
    alone = planned("arch=qwen3 layout=cp2_ep2")
    assert ids(references.without(alone)) == ["qwen3-cp2_ep1-base"]
    assert references.without(cases[1:]) == []


@pytest.mark.parametrize(
    ("asked", "reference"),
    [
        ("arch=llama layout=cp2_ep2 feature=none", "llama-single-none"),
        ("arch=laguna layout=fsdp2_ep2 feature=ac_only", "laguna-single-ac_only"),
        ("arch=llama layout=single feature=ac_only", "llama-single-none"),
        ("arch=llama layout=fsdp2_ep2 feature=full_offload", "llama-fsdp2_ep1-none"),
        ("arch=llama layout=single feature=none fault=dead_model", "llama-single-none"),
        ("arch=llama layout=cp2_ep2 feature=none fault=loss_count_times_cp:1.01",
         "llama-single-none"),
    ],
)  # fmt: skip
def test_references_are_added_and_compared_with(asked: str, reference: str) -> None:
    cases = references.added(planned(asked), one)
    assert ids(cases)[1:] == [reference]
    facts = {case.case.id: references.as_facts(case) for case in cases}
    first = facts[cases[0].case.id]
    assert [found.case.id for found in peers.candidates(first, facts)] == [reference]
    assert cases[0] not in references.without(cases)


def test_nothing_is_plainer_than_one_process_without_a_feature() -> None:
    cases = planned("arch=llama layout=single feature=none")
    assert ids(references.added(cases, one)) == ids(cases)
    assert ids(references.without(cases)) == ids(cases)


def test_the_command_line_adds_references() -> None:
    words = ("-m", "arch=llama", "layout=cp2_ep2", "optim.lr=1e-4,1e-3", "plan=true")
    done = sweep(*words, "references=true")
    assert done.returncode == 0, done.stderr
    assert "llama-single-base-optim.lr_0.0001" in done.stdout
    assert "4 cases" in done.stdout
    assert "compared with nothing" not in done.stdout
    refused = sweep("arch=llama", "layout=cp2_ep2", "references=true")
    assert refused.returncode == 2
    assert "add -m" in refused.stderr
