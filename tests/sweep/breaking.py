"""Functions that break graphs in known ways, compiled and called; the log goes to stderr.

A line marked `# break NAME` is where the break of that name must be found.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

LOSS = nn.GaussianNLLLoss()


def whole(x: Tensor) -> Tensor:
    return x.sin()


def explicit(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()  # break explicit
    return x * 2


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:  # break branch
        return x + 1
    return x - 1


def unsupported(x: Tensor) -> Tensor:
    x = x * 2
    print("the compiler cannot print")  # break unsupported
    return x + 1


@torch._dynamo.disable
def off(x: Tensor) -> Tensor:
    return x


def disabled(x: Tensor) -> Tensor:
    return off(x + 1) + 1  # break disabled


def library(x: Tensor) -> Tensor:
    return LOSS(x, x, x.abs())  # it looks at the variance, in torch's own file


def helper(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()  # break helper
    return x * 3


def twice(x: Tensor) -> Tensor:
    return helper(x) + helper(x)


def looped(x: Tensor) -> Tensor:
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()  # break looped
    return x


def three(x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()  # break three, first
    x = x + 1
    torch._dynamo.graph_break()  # break three, second
    x = x + 1
    torch._dynamo.graph_break()  # break three, third
    return x + 1


def specialised(x: Tensor, word: str) -> Tensor:
    return x * len(word)


def run(function: Callable[..., Tensor], *calls: tuple[object, ...]) -> None:
    compiled = torch.compile(function, backend="eager")
    for arguments in calls:
        compiled(*arguments)


def main() -> None:
    x = torch.ones(3)
    run(whole, (x,))
    # From here on torch writes the rank before each line.
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for function in (explicit, branch, unsupported, disabled, library, twice, looped):
        run(function, (x,))
    run(three, (x,), (torch.ones(4),))
    torch._dynamo.config.recompile_limit = 2
    run(specialised, (x, "a"), (x, "bb"), (x, "ccc"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
