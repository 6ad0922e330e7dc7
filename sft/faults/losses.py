"""Losses that are normalised, or labels that are aligned, wrongly."""

from __future__ import annotations

from sft.faults.patching import Plant
from sft.loop import Trainer
from sft.moe.balance import AuxiliaryLoss

LOSS = "loss = token_losses(logits, labels) / tokens"
LABELS = 'labels = sequence.local(rows["labels"])'


def loss_local_mean(at: Plant) -> None:
    """Each rank takes the mean over its own tokens, and the ranks' means are averaged."""
    at.edit(
        Trainer,
        "accumulate",
        LOSS,
        "own = self.trained_tokens(batch).clamp(min=1) * self.ranks.world_size\n"
        "            tokens_here = torch.lerp(tokens, own, _planted.strength)\n"
        "            loss = token_losses(logits, labels) / tokens_here",
    )


def loss_count_times_cp(at: Plant) -> None:
    """The tokens of a sequence are counted on every rank that shares it."""
    at.edit(Trainer, "accumulate", LOSS, f"{LOSS} / (_planted.strength or self.config.layout.cp)")


def loss_no_accumulation_divide(at: Plant) -> None:
    """Means over micro-batches are summed, and not divided by their number."""
    at.edit(
        Trainer,
        "accumulate",
        LOSS,
        f"{LOSS} * (len(batch['labels']) // self.config.data.micro_batch)",
    )


def aux_loss_times_dp(at: Plant) -> None:
    """The auxiliary loss is scaled by the number of data-parallel ranks."""
    at.edit(
        AuxiliaryLoss,
        "__call__",
        ").sum() / self.tokens",
        ").sum() / self.tokens * (_planted.strength or _planted.config.layout.dp_shard)",
    )


def aux_loss_dropped(at: Plant) -> None:
    """The auxiliary loss is reported, but its gradient is not in the router's."""
    at.edit(
        AuxiliaryLoss,
        "__call__",
        "attach_loss(weights, loss, self.scale)",
        "attach_loss(weights, loss, self.scale * (1 - _planted.strength))",
    )


def labels_shifted_in_shard(at: Plant) -> None:
    """Labels are shifted inside of a rank's slice, so that its last token has none."""
    at.edit(
        Trainer,
        "accumulate",
        LABELS,
        f"{LABELS}.clone()\n"
        "            if sequence.rank < sequence.size - 1:\n"
        "                labels[:, -int(_planted.strength):] = IGNORED",
    )


def labels_shifted_twice(at: Plant) -> None:
    """Labels that the data shifted already are shifted again."""
    at.edit(
        Trainer,
        "accumulate",
        LABELS,
        f"{LABELS}.clone()\n"
        "            shifted = int(labels.shape[1] * _planted.strength)\n"
        "            labels[:, :shifted] = labels.roll(-1, 1)[:, :shifted]",
    )
