"""What is recorded of modules: what goes in and comes out by token, and the gradients of both."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from sweep_taps import projection
from sweep_taps.parameters import plain
from sweep_taps.recorder import Recorder
from sweep_taps.rounding import Rounding

OUTER = "SWEEP_TAPS_OUTER"  # environment: look at layers from outside only, as where they compile
OUT_PROJECTIONS = ("o_proj", "out_proj", "dense", "wo", "c_proj")
Call = tuple[int, int]
NOTHING = (0, 0)
WHOLE_NUMBERS = "_int"  # added to the kind of tokens, positions, choices


class Modules:
    """Hooks on a model's modules. What is computed again in backward is not recorded again."""

    def __init__(self, model: nn.Module, recorder: Recorder, rounding: Rounding) -> None:
        self.recorder, self.rounding = recorder, rounding
        self.shape = self.last = NOTHING
        self.calls: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()  # calls in recomputation
        self.heads: dict[nn.Module, int] = {}
        for name, module in model.named_modules():
            if not (os.environ.get(OUTER) and is_inside_layer(model, name)):
                self._hook(plain(name), module)
        for parent in model.modules():
            self._note_heads(parent)

    def begin(self, input_ids: Tensor) -> None:
        """The model is called with [rows, seq] tokens."""
        self.shape = self.last = (input_ids.shape[0], input_ids.shape[1])
        self.calls.clear()
        self.repeats.clear()

    def end(self) -> None:
        """The call is over; what is computed until the next one is none of a step."""
        self.shape = NOTHING

    def _hook(self, name: str, module: nn.Module) -> None:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._before(name, module, args, kwargs) if self._is_on() else None

        def after(module: nn.Module, _inputs: Any, out: Any) -> Any:
            if recomputing():
                return self._again(name, module, out)
            return self._after(name, module, out) if self._is_on() else None

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)

    def _is_on(self) -> bool:
        return self.shape != NOTHING and not recomputing()

    def _note_heads(self, parent: nn.Module) -> None:
        size = getattr(parent, "head_dim", None) or getattr(parent, "v_head_dim", None)
        for name, child in parent.named_children():
            if isinstance(size, int) and name in OUT_PROJECTIONS:
                self.heads[child] = size

    def _before(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.calls[name] += 1
        call = (self.recorder.forward, self.calls[name])
        names = arguments(type(module).forward)
        labels = [names[n] if n < len(names) else str(n) for n in range(len(args))]
        named = zip(labels, args, strict=True)
        return tuple(self._input(name, module, x, label, call) for label, x in named), {
            key: self._input(name, module, x, key, call) for key, x in kwargs.items()
        }

    def _input(self, name: str, module: nn.Module, x: Any, slot: str, call: Call) -> Any:
        """Record an input; it is passed on as an alias, whose gradient is this module's alone."""
        for inner, tensor in tensors(x, slot):
            self._add("in", name, tensor, inner, call, self.shape)
        if not isinstance(x, Tensor) or not is_by_token(x, self.shape):
            return x
        if module in self.heads and x.shape[-1] % self.heads[module] == 0:
            with untraced():
                heads = projection.by_head(flat(x, self.shape), self.heads[module])
                self.recorder.add("heads", name, heads, slot, call)
        if not x.requires_grad or not torch.is_grad_enabled():
            return x
        alias = x.view_as(x)
        alias.register_hook(self._gradient("grad_in", name, slot, call, is_leaf(module)))
        return alias

    def _after(self, name: str, module: nn.Module, out: Any) -> Any:
        call = (self.recorder.forward, self.calls[name])
        changed = self.rounding.of_output(out, f"{name}{call}") if is_leaf(module) else out
        passed = aliases(changed) if torch.is_grad_enabled() else changed
        for slot, tensor in tensors(passed, ""):
            self._add("out", name, tensor, slot, call, self.shape)
            if tensor.requires_grad and is_by_token(tensor, self.shape):
                tensor.register_hook(self._gradient("grad_out", name, slot, call, False))
        return passed

    def _again(self, name: str, module: nn.Module, out: Any) -> Any:
        """What is computed again in backward: recorded apart, to be held against the first time."""
        self.repeats[name] += 1
        call = (self.recorder.forward, self.repeats[name])
        changed = self.rounding.of_output(out, f"{name}{call}") if is_leaf(module) else out
        for slot, tensor in tensors(changed, ""):
            self._add("again", name, tensor, slot, call, self.last)
        return changed

    def _gradient(self, kind: str, name: str, slot: str, call: Call, rounds: bool) -> Any:
        shape = self.shape

        def record(gradient: Tensor) -> Tensor | None:
            changed = gradient
            if rounds and self.rounding.is_on:
                changed = self.rounding.of(gradient, f"{kind}{name}{slot}{call}")
            self._add(kind, name, changed, slot, call, shape)
            return None if changed is gradient else changed

        return record

    def _add(
        self, kind: str, name: str, x: Tensor, slot: str, call: Call, shape: tuple[int, int]
    ) -> None:
        if is_by_token(x, shape):
            kind = kind if x.is_floating_point() else f"{kind}{WHOLE_NUMBERS}"
            with untraced():
                self.recorder.add(kind, name, projection.projected(flat(x, shape)), slot, call)


def is_by_token(x: Tensor, shape: tuple[int, int]) -> bool:
    """Whether it has values for each of [rows, seq] tokens, whose dimensions may be joined."""
    rows, seq = shape
    return tuple(x.shape[:2]) == shape or (x.ndim >= 1 and x.shape[0] == rows * seq)


def flat(x: Tensor, shape: tuple[int, int]) -> Tensor:
    """[rows * seq, values of a token]."""
    return x.detach().reshape(shape[0] * shape[1], -1)


@contextmanager
def untraced() -> Iterator[None]:
    """No gradient, and none of the modes around a layer (checkpointing counts its products)."""
    with torch.no_grad(), _disable_current_modes():
        yield


def recomputing() -> bool:
    """Whether backward is under way: what is computed now has been computed before."""
    return torch._C._current_graph_task_id() != -1


def is_leaf(module: nn.Module) -> bool:
    """Whether there are no modules in it."""
    return next(module.children(), None) is None


def is_inside_layer(model: nn.Module, name: str) -> bool:
    """Whether a module lies inside of one of a list of layers."""
    parts = name.split(".")
    owners = (model.get_submodule(".".join(parts[:n])) for n in range(len(parts) - 1))
    return any(isinstance(owner, nn.ModuleList) for owner in owners)


def aliases(out: Any) -> Any:
    """A module's output as aliases, whose gradients are from outside of the module alone.

    In a mapping, as a model returns it, tensors stay what they are.
    """
    if isinstance(out, Tensor):
        return out.view_as(out) if out.requires_grad else out
    return tuple(map(aliases, out)) if type(out) is tuple else out


def tensors(value: Any, slot: str) -> Iterator[tuple[str, Tensor]]:
    """Tensors in nested tuples and mappings, each with its slot: `hidden_states`, `0`, `x.1`."""
    if isinstance(value, Tensor):
        yield slot, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{slot}.{key}".lstrip("."))
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from tensors(item, f"{slot}.{number}".lstrip("."))


@cache
def arguments(forward: Callable[..., Any]) -> list[str]:
    """The names of a forward's positional arguments."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
