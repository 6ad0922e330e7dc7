"""Finds the model and the optimizers of a trainer, and follows them step by step.

By torch's own hooks: global ones for whatever module and optimizer a trainer has, then one for each
module, tensor and parameter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from sweep_taps import batches
from sweep_taps.modules import Modules, recomputing, untraced
from sweep_taps.parameters import Parameters, divisor
from sweep_taps.recorder import Recorder
from sweep_taps.rounding import Rounding

INSIDE = "SWEEP_TAPS_INSIDE"
FIRST = "SWEEP_TAPS_FIRST_STEP"  # environment: where a run begins that never calls `batch`
_watcher: Watcher | None = None


def start() -> None:
    """Follow this process's training, if the environment asks; done by the import itself.

    Only a process that is forked from one with the import done has to call it, or `watch`.
    """
    global _watcher
    if _watcher is None and batches.is_on() and os.environ.get(INSIDE):
        _watcher = Watcher()


def stop() -> None:
    """Follow no more; what was hooked in a model stays, and does nothing."""
    global _watcher
    if _watcher is not None:
        _watcher.end()
    _watcher = None
    batches.shown.clear()


def watch(model: nn.Module) -> None:
    """Look into this model; without the call, into the first one called that has an embedding."""
    start()
    if _watcher is not None:
        _watcher.follow(model)


def stepped(
    gradients: Mapping[str, Tensor],
    states: Mapping[str, Mapping[str, Tensor]],
    options: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
) -> None:
    """For an optimizer that is none of torch's, after a step: by parameter what it stepped with.

    `options` are [`parameters.OPTIONS`] numbers, `before` the weights before the step.
    """
    if _watcher is not None:
        _watcher.stepped(gradients, states, options, before)


class Watcher:
    """One process's training."""

    def __init__(self) -> None:
        self.recorder, self.rounding = Recorder(), Rounding()
        self.modules: Modules | None = None
        self.parameters: Parameters | None = None
        self.model: nn.Module | None = None
        self.step = int(os.environ.get(FIRST, "1"))
        self.shows_rows = False  # nobody calls `batch`: what the model is called with is shown
        self.in_forward = False
        self.is_open = self.is_closed = False  # the step has a forward; it has an optimizer's step
        self.has_weights = self.has_states = False  # what the run began with is recorded
        self.handles = (
            torch_module.register_module_forward_pre_hook(self._find),
            torch_optimizer.register_optimizer_step_pre_hook(self._before_step),
            torch_optimizer.register_optimizer_step_post_hook(self._after_step),
        )

    def end(self) -> None:
        """Take the global hooks away."""
        for handle in self.handles:
            handle.remove()

    def follow(self, model: nn.Module) -> None:
        """Hook everything in it, once."""
        if self.model is not None:
            return
        self.model = getattr(model, "module", model) if _is_ddp(model) else model
        self.model.register_forward_pre_hook(self._enter, with_kwargs=True)
        self.model.register_forward_hook(self._leave)
        self.modules = Modules(self.model, self.recorder, self.rounding)
        self.parameters = Parameters(self.model, self.recorder)
        self.recorder.facts["divisor"] = divisor(model)

    def _find(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Until a model is known: the first module called that has an embedding and is not one."""
        if self.model is None:
            has_embedding = any(isinstance(inner, nn.Embedding) for inner in module.modules())
            if has_embedding and not isinstance(module, nn.Embedding):
                self.follow(module)
        elif not self.in_forward and isinstance(module, nn.Embedding) and not recomputing():
            self._begin(args[0], {})  # the call in which the model was found

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recomputing():
            return
        named = {**dict(zip(("input_ids",), args, strict=False)), **kwargs}
        if isinstance(tokens := named.get("input_ids"), Tensor):
            self._begin(tokens, named)

    def _leave(self, *_: Any) -> None:
        if not recomputing() and self.modules is not None:
            self.in_forward = False
            self.modules.end()

    def _begin(self, tokens: Tensor, named: Mapping[str, Any]) -> None:
        """A forward of [rows, seq] tokens; one without gradients is an evaluation."""
        if self.modules is None or self.parameters is None:
            return
        if tokens.ndim != 2 or not torch.is_grad_enabled():
            return
        if self.is_closed:
            self.recorder.clear()
            self.parameters.places.clear()
            self.step += 1
        self.in_forward, self.is_open, self.is_closed = True, True, False
        with untraced():
            self._note_rows(tokens, named)
            if not self.has_weights:
                self.parameters.weights("weight_before")
                self.has_weights = True
            self.recorder.begin(tokens, batches.shown.get(self.step, []))
        self.modules.begin(tokens)

    def _note_rows(self, tokens: Tensor, named: Mapping[str, Any]) -> None:
        """The step that `batch` was called for; where nobody calls it, these tokens are shown."""
        if batches.shown and not self.shows_rows:
            self.step = next(iter(batches.shown))
            return
        self.shows_rows = True
        labels, positions = named.get("labels"), named.get("position_ids")
        if labels is None:
            labels = torch.full_like(tokens, -100)
        if positions is None:
            positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        batches.batch(self.step, tokens, labels, positions, labels_of="token")

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self.is_open or self.parameters is None:
            return
        with untraced():
            if not self.is_closed:
                self.parameters.gradients()
            if not self.has_states:
                self.parameters.states(optimizer, "_before")
                self.has_states = True
            self.parameters.options(optimizer)
            if not self.is_closed:
                self.parameters.begin_step()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self.is_open or self.parameters is None:
            return
        with untraced():
            self.parameters.states(optimizer)
            self.parameters.updates(self.parameters.before)
            self._close()

    def stepped(
        self,
        gradients: Mapping[str, Tensor],
        states: Mapping[str, Mapping[str, Tensor]],
        options: Mapping[str, Tensor],
        before: Mapping[str, Tensor],
    ) -> None:
        """See `sweep_taps.stepped`."""
        if not self.is_open or self.parameters is None:
            return
        with untraced():
            self.parameters.reduced_gradients()
            for name, gradient in gradients.items():
                self.parameters.add("stepped", name, gradient)
            for name, values in options.items():
                self.parameters.put("options", name, values)
            for name, state in states.items():
                for key, value in state.items():
                    self.parameters.add(key, name, value)
            self.parameters.updates(before)
            self._close()

    def _close(self) -> None:
        """The optimizer stepped; the file is written again where another one steps after it."""
        assert self.parameters is not None
        self.parameters.weights("weight")
        self.recorder.write(self.step)
        self.is_closed = True


def _is_ddp(model: nn.Module) -> bool:
    return isinstance(model, nn.parallel.DistributedDataParallel)
