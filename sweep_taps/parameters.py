"""What is recorded of parameters: gradients, the optimizer's options and states, weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from sweep_taps.projection import projected, whole
from sweep_taps.recorder import Recorder

OPTIONS = ("lr", "weight_decay", "beta1", "beta2", "eps", "step")
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def plain(name: str) -> str:
    """A name without what wrappers add to it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


class Parameters:
    """A model's parameters; every rank goes over them in one order, since shards are joined."""

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self.model, self.recorder = model, recorder
        self.before: dict[str, Tensor] = {}
        self.places: dict[tuple[str, str], int] = {}  # where in the records each of the step's is
        self.reduced: dict[nn.Parameter, Tensor] = {}
        for _, parameter in self.named():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._keep)

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by their plain names."""
        return ((plain(name), p) for name, p in self.model.named_parameters())

    def _keep(self, parameter: nn.Parameter) -> None:
        """The gradient as backward leaves it, before it is clipped.

        In a shorter type a trainer may add micro-batches up elsewhere: there only what the
        optimizer is given counts.
        """
        if parameter.grad is not None and parameter.dtype == torch.float32:
            self.reduced[parameter] = parameter.grad.detach().clone()

    def weights(self, kind: str) -> None:
        """Parameters and buffers as they are now."""
        for name, parameter in self.named():
            self.add(kind, name, parameter)
        for name, buffer in self.model.named_buffers():
            self.add(kind, plain(name), buffer)

    def begin_step(self) -> None:
        """Remember the weights that the optimizer is about to change."""
        self.before = {name: p.detach().clone() for name, p in self.named() if p.requires_grad}

    def updates(self, before: Mapping[str, Tensor]) -> None:
        """What a step added to each weight, of which a small error is lost in the weight itself."""
        for name, parameter in self.named():
            if name in before:
                self.add("update", name, parameter.detach() - before[name])

    def gradients(self) -> None:
        """As backward left them, and as the optimizer gets them."""
        self.reduced_gradients()
        self._all("stepped", {p: p.grad for _, p in self.named() if p.grad is not None})

    def reduced_gradients(self) -> None:
        """As backward left them."""
        self._all("grad", self.reduced)
        self.reduced.clear()

    def states(self, optimizer: torch.optim.Optimizer, suffix: str = "") -> None:
        """Adam's moments, or whatever of `STATES` there is."""
        for state in STATES:
            values = {
                parameter: optimizer.state[parameter][state]
                for _, parameter in self.named()
                if state in optimizer.state.get(parameter, {})
            }
            self._all(state + suffix, values)

    def options(self, optimizer: torch.optim.Optimizer) -> None:
        """What each parameter is about to be stepped with; none for one that nobody owns."""
        owners = {p: group for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in self.named():
            if (group := owners.get(parameter)) is not None:
                self.put("options", name, options_of(group, optimizer.state.get(parameter, {})))

    def _all(self, kind: str, tensors: Mapping[Any, Tensor | None]) -> None:
        """One of each parameter that has one on any rank; zeros where this rank has none."""
        parameters = [(name, p) for name, p in self.named() if p.requires_grad]
        has_one = anywhere([tensors.get(p) is not None for _, p in parameters])
        for (name, parameter), is_there in zip(parameters, has_one, strict=True):
            if is_there:
                mine = tensors.get(parameter)
                self.add(kind, name, torch.zeros_like(parameter) if mine is None else mine)

    def add(self, kind: str, name: str, x: Tensor) -> None:
        """Project a tensor row by row; of one that is sharded rank 0 keeps it for all."""
        full = whole(x)
        self.recorder.facts.setdefault("shards", {})[name] = row_shards(x)
        if not isinstance(x, DTensor) or not dist.is_initialized() or dist.get_rank() == 0:
            self.put(kind, name, projected(full if full.ndim else full.unsqueeze(0)))

    def put(self, kind: str, name: str, values: Tensor) -> None:
        """Keep numbers; a second optimizer's step replaces what the first left of the same."""
        place = self.places.get((kind, name))
        if place is not None:
            self.recorder.tensors[place] = values
            return
        self.places[kind, name] = len(self.recorder.tensors)
        self.recorder.add(kind, name, values)


def options_of(group: Mapping[str, Any], state: Mapping[str, Any]) -> Tensor:
    """[`OPTIONS`] numbers; NaN for what this optimizer does not have."""
    beta1, beta2 = group.get("betas", (float("nan"), float("nan")))
    known = {**group, "beta1": beta1, "beta2": beta2, "step": state.get("step", 0)}
    return torch.tensor([float(known.get(key, float("nan"))) for key in OPTIONS]).double()


def divisor(model: nn.Module) -> int:
    """By what reducing divides the sum of the ranks' gradients: FSDP and DDP take the mean."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return model.process_group.size()
    if not any(isinstance(module, FSDPModule) for module in model.modules()):
        return 1
    return max(
        (p.device_mesh.size() for p in model.parameters() if isinstance(p, DTensor)), default=1
    )


def row_shards(x: Tensor) -> int:
    """Over how many ranks a tensor's rows are split; 1 where they are not, or in another way."""
    if not isinstance(x, DTensor) or x.device_mesh.ndim != 1 or not x.placements[0].is_shard(0):
        return 1
    return x.device_mesh.size()


def anywhere(flags: Iterable[bool]) -> list[bool]:
    """Each flag, true where it is on any rank."""
    values = torch.tensor(list(flags), dtype=torch.uint8)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        values = values.to(_device())
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values.bool().tolist()


def _device() -> torch.device:
    if dist.get_backend() == "gloo":
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_accelerator() or "cpu")
