"""State that is lost, stale or applied twice on the way through a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sft import checkpoint
from sft.data import Loader
from sft.faults.patching import Function, Plant
from sft.loop import Trainer
from sft.moe.biases import NAME as BIAS
from sft.report.shards import local

POSITION = 'trainer.loader.load_state_dict(saved["loader"])'
SCHEDULER = 'trainer.scheduler.load_state_dict(saved["scheduler"])'


def resume_data_restart(at: Plant) -> None:
    """The data start from the beginning, since the iterator was made before the position came."""
    at.edit(checkpoint, "load", POSITION, "pass")


def resume_data_rank0_only(at: Plant) -> None:
    """One rank finds its place in the data again, the others start from the beginning."""
    at.edit(
        checkpoint,
        "load",
        POSITION,
        f"if trainer.ranks.rank == _planted.strength:\n        {POSITION}",
    )


def resume_data_skip_one(at: Plant) -> None:
    """Batches that were fetched ahead when the checkpoint was saved are never trained on."""
    at.edit(
        checkpoint,
        "load",
        POSITION,
        'saved["loader"]["rows"] += int(_planted.strength) * trainer.config.data.global_batch\n'
        f"    {POSITION}",
    )


def resume_twice_data(at: Plant) -> None:
    """The position that a resumed run saves counts from where it was resumed."""
    resumed_at: list[int] = []
    at.after(Loader, "load_state_dict", lambda _, _loader, state: resumed_at.append(state["rows"]))

    def since(state: dict[str, int], _loader: Loader) -> dict[str, int]:
        return state | {"rows": state["rows"] - resumed_at[-1]} if resumed_at else state

    at.after(Loader, "state_dict", since)


def resume_without_moments(at: Plant) -> None:
    """Adam's moments do not come back."""

    def forget(_: None, trainer: Trainer, _place: Path) -> None:
        states = trainer.optimizer.state
        for parameter in some(list(states), at.strength):
            del states[parameter]

    at.after(checkpoint, "load", forget)


def resume_without_scheduler(at: Plant) -> None:
    """The learning rate's schedule starts anew."""
    at.edit(
        checkpoint, "load", SCHEDULER, "trainer.scheduler.last_epoch = -1; trainer.scheduler.step()"
    )


def resume_scheduler_twice(at: Plant) -> None:
    """The learning rate's schedule is stepped on resuming."""

    def step(_loaded: None, trainer: Trainer, _place: Path) -> None:
        for _ in range(int(at.strength)):
            trainer.scheduler.step()

    at.after(checkpoint, "load", step)


def resume_stale_masters(at: Plant) -> None:
    """The first step after a resume goes out from the weights that were there before it."""

    def make(load: Function) -> Function:
        def stale(trainer: Trainer, place: Path) -> None:
            parameters = some(list(trainer.model.parameters()), at.strength)
            before = [local(parameter).detach().clone() for parameter in parameters]
            load(trainer, place)
            once(trainer.optimizer, lambda: put(parameters, before))

        return stale

    at.around(checkpoint, "load", make)


def resume_step_counter(at: Plant) -> None:
    """Adam's own count of steps, by which it corrects its moments, starts anew."""

    def reset(_: None, trainer: Trainer, _place: Path) -> None:
        for state in trainer.optimizer.state.values():
            state["step"].fill_(at.strength)

    at.after(checkpoint, "load", reset)


def resume_without_rng(at: Plant) -> None:
    """Random streams start anew."""
    at.edit(checkpoint, "load", 'restore_rng(state["rng"][str(trainer.ranks.rank)])', "pass")


def resume_older_step(at: Plant) -> None:
    """The weights and moments of an older checkpoint are loaded under the later one's step."""
    saves, resumes_from = at.config.checkpoint.save_at, at.config.checkpoint.resume_from
    saves += [step - int(at.strength) for step in saves]
    if resumes_from:
        later = Path(resumes_from)
        step = int(later.name.removeprefix("step_")) - int(at.strength)
        at.config.checkpoint.resume_from = str(later.with_name(f"step_{step}"))
        at.around(checkpoint, "read_shared", lambda read: lambda _place: read(later))


def resume_ignored(at: Plant) -> None:
    """A run that was asked to go on starts from the beginning."""
    at.edit(Trainer, "__init__", "if config.checkpoint.resume_from:", "if False:")


def shard_truncated(at: Plant) -> None:
    """A file of the checkpoint is cut off after it was written."""

    def cut(place: Path, trainer: Trainer) -> None:
        if trainer.ranks.rank == 0:
            shard = max(place.glob("*.distcp"), key=lambda file: file.stat().st_size)
            content = shard.read_bytes()
            shard.write_bytes(content[: int(len(content) * at.strength)])

    at.after(checkpoint, "save", cut)


def router_bias_not_saved(at: Plant) -> None:
    """The biases that balance the routers are not in the checkpoint."""

    def biases(trainer: Trainer) -> list[Tensor]:
        buffers = trainer.model.named_buffers()
        return [x for name, x in buffers if name.endswith(BIAS)][: int(at.strength)]

    keep(at, biases)


def last_expert_not_saved(at: Plant) -> None:
    """The last experts of every layer are not in the checkpoint."""
    keep(
        at,
        lambda trainer: [
            local(parameter)[-int(at.strength) :].detach()
            for name, parameter in trainer.model.named_parameters()
            if ".experts." in name
        ],
    )


def keep(at: Plant, tensors: Callable[[Trainer], list[Tensor]]) -> None:
    """Leave these tensors as they were when a checkpoint is loaded: it does not have them."""

    def make(load: Function) -> Function:
        def without(trainer: Trainer, place: Path) -> None:
            before = [tensor.clone() for tensor in tensors(trainer)]
            load(trainer, place)
            put(tensors(trainer), before)

        return without

    at.around(checkpoint, "load", make)


def some(values: list[Any], share: float) -> list[Any]:
    """That share of a list, at least one."""
    return values[: max(1, round(len(values) * share))]


@torch.no_grad()
def put(tensors: list[Any], values: list[Tensor]) -> None:
    """Write the values into the tensors."""
    for tensor, value in zip(tensors, values, strict=True):
        local(tensor).copy_(value)


def once(optimizer: torch.optim.Optimizer, action: Callable[[], None]) -> None:
    """Do something before the optimizer's next step only."""

    def hook(*_: Any) -> None:
        action()
        handle.remove()

    handle = optimizer.register_step_pre_hook(hook)
