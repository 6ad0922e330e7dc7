"""`save_on_cpu(pin_memory=True)` hands activations back with other strides than were saved.

Compiled code that saved them stops in backward. Pinned memory needs an accelerator, so that where
there is none `torch.empty` is made to leave the pinning out; the copies are torch's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu


@contextmanager
def pinned_or_not() -> Iterator[None]:
    """Let `pin_memory=True` pass without an accelerator."""
    if torch.accelerator.is_available():
        yield
        return
    empty = torch.empty

    def unpinned(*args: Any, **kwargs: Any) -> Tensor:
        return empty(*args, **{**kwargs, "pin_memory": False})

    with patch.object(torch, "empty", unpinned):
        yield


def main() -> None:
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    x = torch.rand(32, 64, device=device).t().requires_grad_()
    with pinned_or_not():
        hooks = save_on_cpu(pin_memory=True, device_type=device.type)
        back = hooks.unpack_hook(hooks.pack_hook(x.detach()))
    print(f"saved with strides {x.stride()}, handed back with {back.stride()}")
    compiled = torch.compile(lambda x: x.sin())
    with pinned_or_not(), save_on_cpu(pin_memory=True, device_type=device.type):
        out = compiled(x)
        try:
            out.sum().backward()
            print("backward went through")
        except AssertionError as error:
            print(f"backward: AssertionError: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
