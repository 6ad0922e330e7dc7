"""Operators are counted by name, and only where that is asked for."""

from __future__ import annotations

import torch

from sft.report import operators


def compute() -> None:
    values = torch.ones(3, 3, requires_grad=True)
    (values @ values @ values).sum().backward()


def test_what_runs_inside_is_counted_backward_included() -> None:
    with operators.counted(True) as counts:
        compute()
    assert counts["aten::mm"] == 2 + 4
    assert not [name for name in counts if name.startswith("autograd")]


def test_nothing_is_counted_unless_asked() -> None:
    with operators.counted(False) as counts:
        compute()
    assert counts == {}
