"""The training loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import set_seed

import sweep_taps
from sft import checkpoint, data, export, model
from sft.accumulation import Sums
from sft.config import Config
from sft.context import choices, ties
from sft.context.sequence import Sequence, computing, document_ids, slice_of
from sft.data import IGNORED, Loader, Row
from sft.kernels import check_device
from sft.memory import apply
from sft.moe import balance
from sft.optimizer import make_optimizer
from sft.packing import packed_rows
from sft.ranks import Ranks
from sft.report import about, counters, gradients, operators, shards
from sft.report.metrics import Movement, Record, path_in, peak_memory_gib, worst, write


class Trainer:
    """A model, its optimizer and its data on this rank."""

    def __init__(self, config: Config, ranks: Ranks) -> None:
        set_seed(config.seed)
        ties.book.open(config.choices)
        self.config, self.ranks = config, ranks
        check_device(config.model, ranks.device.type)
        self.model = model.load(config)
        apply.place(self.model, config.memory, ranks.device)
        self.balance = balance.Balance(self.model, config, ranks)
        apply.to_model(self.model, config.memory, ranks.device)
        self.optimizer = make_optimizer(self.model, config)
        apply.to_optimizer(self.optimizer, config.memory, ranks.device)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / (config.optim.warmup_steps + 1))
        )
        self.loader = make_loader(config, ranks)
        self.step = 0
        set_seed(config.seed + ranks.rank)  # ranks hold different tokens: no common dropout
        if config.checkpoint.resume_from:
            checkpoint.load(self, Path(config.checkpoint.resume_from))
        counters.take()  # loading an optimizer's state takes a step of it
        self.movement = Movement(self.model, ranks)
        sweep_taps.watch(self.model)

    def run(self) -> None:
        """Train to `config.steps`; rank 0 writes a line of metrics a step."""
        metrics = path_in(self.config.output_dir)
        if self.ranks.rank == 0:
            about.write(metrics.parent, self.loader.digest)
        for batch in itertools.islice(self.loader, self.config.steps - self.step):
            is_profiled = self.step + 1 == self.config.profile_step and self.ranks.rank == 0
            with operators.counted(is_profiled) as counts:
                record = self.train_step({key: x.to(self.ranks.device) for key, x in batch.items()})
            if self.ranks.rank == 0:
                write(record | ({"operators": counts} if counts else {}), metrics)
            if self.step in self.config.checkpoint.save_at:
                checkpoint.save(self)
            if self.step in self.config.checkpoint.export_at:
                export.write(self)
        ties.book.write(metrics.parent / "choices", self.ranks.rank)

    def train_step(self, batch: Row) -> Record:
        """One optimizer step on this rank's rows of a global batch, [rows, seq]."""
        started, worked = time.perf_counter(), time.process_time()
        ties.book.step = self.step = self.step + 1
        self.show(batch)
        lr = self.scheduler.get_last_lr()[0]
        tokens = self.ranks.sum(self.trained_tokens(batch))
        self.balance.start(batch["padding"])
        # a batch without a token under the loss has a loss of 0, not one of 0 / 0
        loss = self.ranks.sum(self.accumulate(batch, tokens.clamp(min=1)))
        norm, groups = gradients.norms(self.model.named_parameters(), self.ranks)
        gradient = gradients.digest(self.model.parameters(), self.ranks.device)
        clip = gradients.clip(self.model.parameters(), norm, self.config.optim.max_grad_norm)
        clipped, _ = gradients.norms(self.model.named_parameters(), self.ranks)
        self.optimizer.step()
        self.scheduler.step()
        self.balance.step()
        moved = self.movement.since_last()
        self.optimizer.zero_grad()
        ties.book.close_step()
        apply.measure(self.model, self.config.memory)
        return {
            "step": self.step,
            "loss": loss.item(),
            "grad_norm": norm,
            "grad_norm_groups": groups,
            "clip_coefficient": clip,
            "grad_norm_clipped": clipped,
            "lr": lr,
            "tokens": int(tokens.item()),
            "step_seconds": time.perf_counter() - started,
            "step_cpu_seconds": worst(time.process_time() - worked, self.ranks),
            "peak_memory_gib": peak_memory_gib(self.ranks),
            **moved,
            "fault": self.config.fault,
            **self.evidence(batch, gradient),
        }

    def show(self, batch: Row) -> None:
        """This rank's slice of its rows to whoever asked for batches."""
        if not sweep_taps.is_on():
            return
        mine = {key: slice_of(x, self.ranks.cp_group) for key, x in batch.items()}
        length = mine["input_ids"].shape[1]
        place = 0 if self.ranks.cp_group is None else self.ranks.cp_group.rank()
        sweep_taps.batch(
            self.step, mine["input_ids"], mine["labels"], mine["position_ids"],
            padding=mine.get("padding"), part=(self.ranks.dp_rank, place * length),
        )  # fmt: skip

    def accumulate(self, batch: Row, tokens: Tensor) -> Tensor:
        """Forward and backward by micro-batches; returns this rank's share of the mean loss.

        FSDP averages gradients over the ranks, so the loss of a rank is its sum of token losses
        over the global token count, times the ranks: the token-weighted mean over all of them.
        """
        total = torch.zeros((), device=self.ranks.device)
        sums = Sums(self.model.parameters())
        for rows in self.micro_batches(batch):
            with computing(self.sequence(rows)) as sequence:
                logits = self.logits(rows, sequence)
                labels = sequence.local(rows["labels"])
                loss = token_losses(logits, labels) / tokens
                (loss * self.ranks.world_size).backward()
            sums.add()
            total += loss.detach()
        sums.put()
        return total

    def micro_batches(self, batch: Row) -> Iterable[Row]:
        """What is computed at once: rows of documents, or one document."""
        if self.config.choices.keep or self.config.choices.replay:
            batch = batch | {"places": self.places(batch["padding"])}
        if self.config.data.packed:
            return split(batch, self.config.data.micro_batch)
        return (document for row in split(batch, 1) for document in data.unpacked(row))

    def places(self, padding: Tensor) -> Tensor:
        """[rows, seq] a number for each token of the global batch, -1 for padding.

        Rows are dealt out in turn: this rank's are every `dp_shard`-th of the batch.
        """
        rows = torch.arange(len(padding), device=padding.device) * self.config.layout.dp_shard
        tokens = torch.arange(padding.shape[1], device=padding.device)
        places = (rows + self.ranks.dp_rank).unsqueeze(1) * padding.shape[1] + tokens
        return places.masked_fill(padding, -1)

    def logits(self, rows: Row, sequence: Sequence) -> Tensor:
        """[rows, seq / cp, vocabulary] of this rank's slice."""
        out = self.model(
            input_ids=sequence.local(rows["input_ids"]),
            position_ids=sequence.local(rows["position_ids"]),
            use_cache=False,  # with a cache, transformers does not keep documents apart
        )
        return out.logits

    def sequence(self, rows: Row) -> Sequence:
        """What the ranks that share these rows compute together."""
        positions = rows["position_ids"]
        return Sequence(
            positions,
            document_ids(positions),
            rows["input_ids"],
            self.ranks.cp_group,
            fla=self.config.model.linear_attention == "fla",
            padding=rows["padding"],
            places=rows.get("places"),
        )

    def trained_tokens(self, batch: Row) -> Tensor:
        """Tokens under the loss in this rank's slice."""
        labels = slice_of(batch["labels"], self.ranks.cp_group)
        return (labels != IGNORED).sum().float().to(self.ranks.device)

    def evidence(self, batch: Row, gradient: str) -> dict[str, Any]:
        """What shows that every rank did its part: digests and counters, by rank.

        `gradient` is the digest of this rank's, before clipping.
        """
        seen = {key: slice_of(rows, self.ranks.cp_group) for key, rows in batch.items()}
        mine = {
            "digest": data.digest(seen),
            "rows": [data.digest(row) for row in split(batch, 1)],
            "rng": data.digest_of(checkpoint.rng(self.ranks.device).values()),
            "gradient": gradient,
        }
        shares = {
            "cp_sequence_share": seen["input_ids"].shape[1] / batch["input_ids"].shape[1],
            "params_sharded": shards.sharded(self.model.parameters()),
        }
        everyone = self.ranks.gather(mine | {"counters": counters.take() | shares})
        return {
            **over_ranks([rank["counters"] for rank in everyone]),
            "rng_digests": [rank["rng"] for rank in everyone],
            "gradient_digests": [rank["gradient"] for rank in everyone],
            "buffers_digest": data.digest_of(untrained(self.model)),
            "batch_digests": [rank["digest"] for rank in everyone],
            "sequence_digests": [data.combine(set(rank["rows"])) for rank in everyone],
            "global_batch_digest": data.combine({row for rank in everyone for row in rank["rows"]}),
            "counters": by_rank([rank["counters"] for rank in everyone]),
        }


def split(batch: Row, rows: int) -> Iterable[Row]:
    """A batch in micro-batches of `rows`."""
    count = len(batch["input_ids"])
    for start in range(0, count, rows):
        yield {key: value[start : start + rows] for key, value in batch.items()}


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The summed cross entropy of the labelled tokens, in float32."""
    return F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def untrained(model: nn.Module) -> list[Tensor]:
    """What is saved but not trained: persistent buffers and frozen parameters (router biases).

    Whole, also where FSDP shards a frozen parameter: the same in every layout.
    """
    return [shards.whole(tensor) for module in model.modules() for tensor in _untrained(module)]


def _untrained(module: nn.Module) -> Iterator[Tensor]:
    for name, buffer in module.named_buffers(recurse=False):
        if name not in module._non_persistent_buffers_set:
            yield buffer
    yield from (
        parameter for parameter in module.parameters(recurse=False) if not parameter.requires_grad
    )


def over_ranks(counts: list[dict[str, Any]]) -> dict[str, Any]:
    """Take out of the ranks' counters what is one figure for all of them, and add it up."""
    losses = [rank.pop(balance.LOSS) for rank in counts if balance.LOSS in rank]
    places = [rank.pop(choices.PLACES) for rank in counts if choices.PLACES in rank]
    summed = {choices.PLACES: [sum(place) for place in zip(*places, strict=True)]} if places else {}
    return summed | ({balance.LOSS: sum(losses)} if losses else {})


def by_rank(counts: list[dict[str, float]]) -> dict[str, list[float]]:
    """Counters of every rank -> the ranks' values of every counter, 0 where nothing was counted."""
    names = sorted({*counters.EFFECTS, *(name for rank in counts for name in rank)})
    return {name: [rank.get(name, 0) for rank in counts] for name in names}


def make_loader(config: Config, ranks: Ranks) -> Loader:
    """This rank's rows; ranks that share a sequence load the same."""
    return Loader(packed_rows(config), config.data, config.layout.dp_shard, ranks.dp_rank)
