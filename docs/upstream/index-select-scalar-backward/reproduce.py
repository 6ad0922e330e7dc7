"""Inductor cannot lower the gradient of `index_select` with an index that has no dimension."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._inductor.exc import InductorError


def scaled(rows: Tensor, x: Tensor, row: Tensor) -> Tensor:
    """`x` [32, 4] times one of `rows` [2, 32], of which sums are the gradient."""
    return x * rows.index_select(0, row).squeeze(0).view(-1, 1)


def main() -> None:
    for row in (torch.tensor([1]), torch.tensor(1)):
        rows, x = (torch.rand(2, 32, requires_grad=True), torch.rand(32, 4))
        try:
            torch.compile(scaled)(rows, x, row).sum().backward()
            print(f"index of shape {list(row.shape)}: backward went through")
        except InductorError as error:
            name, line = type(error).__name__, str(error).splitlines()[0]
            print(f"index of shape {list(row.shape)}: {name}: {line}")


if __name__ == "__main__":
    main()
