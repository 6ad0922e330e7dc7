"""Losses that are normalised, or labels that are aligned, wrongly."""

from __future__ import annotations

from torch import Tensor

from sft import loop
from sft.data import IGNORED
from sft.faults.formulas import through_bf16
from sft.faults.patching import Function, Plant
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


def loss_mean_of_rows(at: Plant) -> None:
    """The loss is the mean of the micro-batches' means, not that of the tokens."""
    at.edit(
        Trainer,
        "accumulate",
        LOSS,
        "own = (labels != IGNORED).sum().clamp(min=1) * self.config.data.global_batch\n"
        "            own = own / self.config.data.micro_batch\n"
        "            inverse = torch.lerp(1 / tokens, 1 / own, _planted.strength)\n"
        "            loss = token_losses(logits, labels) * inverse",
    )


def z_loss_left_on(at: Plant) -> None:
    """A z-loss is added that nobody asked for."""

    def add(loss: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        squares = logits.flatten(0, 1).float().logsumexp(-1).square()
        return loss + at.strength * squares[labels.flatten() != IGNORED].sum()

    at.after(loop, "token_losses", add)


def label_smoothing_left_on(at: Plant) -> None:
    """Labels are smoothed, as for another run."""
    at.edit(
        loop,
        "token_losses",
        "ignore_index=IGNORED",
        "ignore_index=IGNORED, label_smoothing=_planted.strength",
    )


def loss_in_bf16(at: Plant) -> None:
    """Cross entropy is computed from logits in bfloat16."""

    def make(losses: Function) -> Function:
        return lambda logits, labels: losses(through_bf16(logits.float(), at.strength), labels)

    at.around(loop, "token_losses", make)
