"""The Sinkhorn operator computes what the loop does, with its gradient, in one node of a graph."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sft.context.sinkhorn import sinkhorn

EPSILON = 1e-6


def loop(matrices: Tensor, rounds: int) -> Tensor:
    for _ in range(rounds):
        matrices = matrices / (matrices.sum(-1, keepdim=True) + EPSILON)
        matrices = matrices / (matrices.sum(-2, keepdim=True) + EPSILON)
    return matrices


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 20), st.integers(1, 5), st.integers(0, 1000))
def test_it_is_the_loop_with_its_gradient(rounds: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    start = torch.rand(2, 3, size, size, generator=generator, dtype=torch.float64) + 1e-3
    weights = torch.randn(2, 3, size, size, generator=generator, dtype=torch.float64)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    (sinkhorn(ours * 1, rounds, EPSILON) * weights).sum().backward()
    (loop(theirs * 1, rounds) * weights).sum().backward()
    torch.testing.assert_close(sinkhorn(start, rounds, EPSILON), loop(start, rounds))
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_rows_and_columns_sum_to_one_in_the_end() -> None:
    out = sinkhorn(torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) + 0.1, 20, 0.0)
    torch.testing.assert_close(out.sum(0), torch.ones(4))
    torch.testing.assert_close(out.sum(1), torch.ones(4))


def test_compiled_it_is_one_operator_without_a_break() -> None:
    graphs = []

    def keep(graph: torch.fx.GraphModule, _inputs: object) -> object:
        graphs.append([node for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    compiled = torch.compile(lambda x: sinkhorn(x, 20, EPSILON), backend=keep, fullgraph=True)
    x = torch.rand(3, 4, 4, requires_grad=True)
    torch.testing.assert_close(compiled(x), loop(x, 20))
    assert [len(graph) for graph in graphs] == [1]


def test_its_operators_keep_the_rules_of_torch() -> None:
    x = torch.rand(2, 3, 3, requires_grad=True)
    torch.library.opcheck(torch.ops.sft.sinkhorn.default, (x, 2, EPSILON))
