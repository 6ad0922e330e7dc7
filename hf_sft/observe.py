"""What `Trainer` did, as a JSON line a step: its own log, and what shows layout and features on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

import sweep_taps
from hf_sft import experts
from sft import data
from sft.report import shards
from sft.report.metrics import fingerprints, movement


class ObservedTrainer(Trainer):
    """`Trainer` unchanged; its batches, and the model that it really trains, are looked at."""

    def __init__(
        self, *, metrics: Path, export: tuple[int | None, Path] = (None, Path()), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.export_at, self.export_to = export
        self.rows: list[str] = []
        self.tokens = 0
        self.metrics = metrics
        self.add_callback(Reporter(self))

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any) -> Tensor:
        """Note the rows, then let `Trainer` train on them."""
        sweep_taps.watch(model)
        keys = ("input_ids", "labels", "position_ids")
        batch = {key: inputs[key] for key in keys}
        self.rows += [
            data.digest({key: x[i] for key, x in batch.items()})
            for i in range(len(batch["labels"]))
        ]
        self.tokens += int((batch["labels"] != data.IGNORED).sum())
        sweep_taps.batch(
            self.state.global_step + 1, **batch, labels_of="token", padding=filling(batch)
        )
        return super().training_step(model, inputs, *args)

    def export(self) -> None:
        """Write the model as transformers and accelerate do; every rank calls it."""
        state = None
        if self.is_fsdp_enabled:
            state = self.accelerator.get_state_dict(self.model)
        self.model.save_pretrained(self.export_to, state_dict=state)
        self.accelerator.wait_for_everyone()


def filling(rows: data.Row) -> Tensor:
    """[rows, seq] which tokens fill a row up: its last document, of one token, without a label."""
    tokens, positions = rows["input_ids"], rows["position_ids"]
    documents = (positions == 0).cumsum(1)
    last = documents == documents[:, -1:]
    is_filling = (tokens == tokens[:, -1:]) & (rows["labels"] == data.IGNORED)
    return last & (is_filling | ~last).all(1, keepdim=True)


class Reporter(TrainerCallback):
    """Writes a line after each optimizer step."""

    def __init__(self, trainer: ObservedTrainer) -> None:
        self.trainer = trainer
        self.counter: LayerCounter | None = None
        self.before: Tensor | None = None
        self.trained: list[bool] = []
        sharding = getattr(trainer.model.config, "distributed_config", None)
        self.dispatches = getattr(sharding, "ep_implementation", None) == experts.NAME

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The model as it is wrapped and sharded by now."""
        self.counter = LayerCounter(self.trainer.model)
        self.before = fingerprints(self.trainer.model.parameters())

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """What has a gradient, and so is to move: an indexer's parameters have none, say."""
        self.trained = [p.grad is not None for p in self.trainer.model.parameters()]

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Export, where that is asked for after this step."""
        if state.global_step == self.trainer.export_at:
            self.trainer.export()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl,
        logs: dict[str, float] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A step's log has a loss; every rank tells what it did, and rank 0 writes."""
        if logs is None or "loss" not in logs:
            return
        everyone = gather_object([self.mine()])
        if not state.is_world_process_zero:
            return
        line = {
            "step": state.global_step,
            "loss": logs["loss"],
            "grad_norm": logs["grad_norm"],
            "lr": logs["learning_rate"],
            "tokens": sum(rank["tokens"] for rank in everyone),
            **self.movement(everyone),
            "batch_digests": [data.combine(set(rank["rows"])) for rank in everyone],
            "global_batch_digest": data.combine({row for rank in everyone for row in rank["rows"]}),
            "counters": {
                name: [rank["counters"][name] for rank in everyone]
                for name in everyone[0]["counters"]
            },
        }
        with self.trainer.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def mine(self) -> dict[str, Any]:
        """What this rank did since the last call."""
        model, counter = self.trainer.model, self.counter
        assert counter is not None
        assert self.before is not None
        after = fingerprints(model.parameters())
        rows, self.trainer.rows = self.trainer.rows, []
        tokens, self.trainer.tokens = self.trainer.tokens, 0
        moved, self.before = (after != self.before).tolist(), after
        counters = {
            "params_sharded": shards.sharded(model.parameters()),
            "recomputed_layers": counter.take(),
        }
        if self.dispatches:
            counters["ep_tokens_received"] = experts.take()
        return {"rows": rows, "tokens": tokens, "moved": moved, "counters": counters}

    def movement(self, everyone: list[dict[str, Any]]) -> dict[str, Any]:
        """What moved on some rank, of what has a gradient here."""
        names = [name for name, _ in self.trainer.model.named_parameters()]
        moved = [any(ranks) for ranks in zip(*(rank["moved"] for rank in everyone), strict=True)]
        return movement(names, self.trained, moved)


class LayerCounter:
    """Counts decoder layers that were computed again.

    `Trainer` checkpoints a layer's `forward`: hooks of the layer run once, and those of what is
    inside of it each time.
    """

    def __init__(self, model: nn.Module) -> None:
        self.outside = self.inside = 0
        for layer in model.modules():
            if isinstance(layer, GradientCheckpointingLayer):
                layer.register_forward_pre_hook(self.enter)
                next(layer.children()).register_forward_pre_hook(self.compute)

    def enter(self, *_: Any) -> None:
        self.outside += 1

    def compute(self, *_: Any) -> None:
        self.inside += 1

    def take(self) -> int:
        """Since the last call."""
        again = max(0, self.inside - self.outside)
        self.outside = self.inside = 0
        return again
