"""What waits on the CPU, and comes back stale or never goes; memory that is kept."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from sft.faults.patching import Function, Plant
from sft.loop import Trainer
from sft.memory import offloading

KEPT: list[Any] = []


def act_offload_stale(at: Plant) -> None:
    """A buffer is written again before its activation was read back."""
    buffers: dict[Any, Tensor] = {}
    number = itertools.count(1)

    def make(create: Function) -> Function:
        def created(self: Any, *args: Any) -> None:
            create(self, *args)
            pack = self.pack_hook

            def reuse(tensor: Tensor) -> Any:
                packed = pack(tensor)
                if isinstance(packed, Tensor) or next(number) % at.strength:
                    return packed
                order, (device, values) = packed
                shape = (values.shape, values.dtype, values.stride())
                return order, (device, buffers.setdefault(shape, values).copy_(values))

            self.pack_hook = reuse

        return created

    at.around(offloading.ActivationsOnCPU, "__init__", make)


def act_offload_kept(at: Plant) -> None:
    """Activations on the CPU are never let go."""
    number = itertools.count(1)

    def make(create: Function) -> Function:
        def created(self: Any, *args: Any) -> None:
            create(self, *args)
            pack = self.pack_hook

            def keep(tensor: Tensor) -> Any:
                packed = pack(tensor)
                if not isinstance(packed, Tensor) and next(number) % at.strength == 0:
                    KEPT.append(packed)
                return packed

            self.pack_hook = keep

        return created

    at.around(offloading.ActivationsOnCPU, "__init__", make)


def optim_offload_stale(at: Plant) -> None:
    """States come back to the step before their last update was copied."""
    before: dict[tuple[int, str], Tensor] = {}
    ways = itertools.cycle(("there", "back"))  # for a step, and after it

    def make(move: Function) -> Function:
        def stale(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
            move(optimizer, device)
            if next(ways) == "there":
                return
            states = list(optimizer.state.values())
            for state in states[: max(1, round(len(states) * at.strength))]:
                for name in state.keys() - {"step"}:
                    key = (id(state), name)
                    older = before.get(key)
                    before[key] = state[name].detach().clone()
                    if older is not None:
                        state[name] = older

        return stale

    at.around(offloading, "move_states", make)


def memory_leak(at: Plant) -> None:
    """Something of every step is kept."""
    at.after(Trainer, "train_step", lambda *_: leak(at.strength))


def memory_leak_one_rank(at: Plant) -> None:
    """Something of every step is kept on the last rank."""
    last = at.ranks.rank == at.ranks.world_size - 1
    at.after(Trainer, "train_step", lambda *_: leak(at.strength) if last else None)


def leak(mib: float) -> None:
    """Keep memory, written to so that it is really taken."""
    KEPT.append(torch.ones(int(mib * 2**18)))
