"""What recurrent layers share: heads exchanged for sequence, and decays that end with a document.

Recurrences are computed in chunks: pairwise inside a chunk, and by a state carried from chunk to
chunk. Documents are separated by masks, whose shapes do not depend on the data.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sft.context.exchange import divisible, heads_for_sequence
from sft.context.sequence import Sequence
from sft.errors import ConfigError


def whole_sequence(sequence: Sequence, *tensors: Tensor) -> list[Tensor]:
    """Exchange heads for sequence, tensors of one dtype in one message.

    Each [batch, seq / n, heads, ..] -> [batch, seq, heads / n, ..]. Few heads (keys of a delta
    rule, groups of mamba2) are repeated first until the group divides them, so that the whole
    number that a rank gets serves exactly the rank's share of the other heads. Raises `ConfigError`
    where those do not divide.
    """
    heads = max(x.shape[2] for x in tensors)
    if heads % sequence.size:
        raise ConfigError(
            f"layout.cp={sequence.size} does not divide a recurrent layer's {heads} heads; "
            f"use {math.gcd(heads, sequence.size)}"
        )
    ready = [divisible(x, 2, sequence) for x in tensors]
    if sequence.size == 1:
        return ready
    whole: dict[int, Tensor] = {}
    for dtype in dict.fromkeys(x.dtype for x in ready):
        chosen = [i for i, x in enumerate(ready) if x.dtype == dtype]
        whole |= zip(chosen, _exchange([ready[i] for i in chosen], sequence), strict=True)
    return [whole[i] for i in range(len(ready))]


def _exchange(tensors: list[Tensor], sequence: Sequence) -> list[Tensor]:
    shares = [x.unflatten(2, (sequence.size, -1)) for x in tensors]
    flat = torch.cat([share.flatten(3) for share in shares], dim=-1)
    moved = heads_for_sequence(flat, sequence, seq_dim=1, head_dim=2).squeeze(2)
    parts = moved.split([math.prod(share.shape[3:]) for share in shares], dim=-1)
    return [part.unflatten(-1, share.shape[3:]) for part, share in zip(parts, shares, strict=True)]


def heads_like(x: Tensor, other: Tensor) -> Tensor:
    """Heads of x [batch, seq, heads, ..] repeated to be as many as those of `other`."""
    repeats = other.shape[2] // x.shape[2]
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=2)


def in_chunks(x: Tensor, size: int) -> Tensor:
    """[batch, seq, heads, ..] -> [batch, heads, chunks, size, ..], zeros at the end, float32."""
    x = x.to(torch.promote_types(x.dtype, torch.float32)).transpose(1, 2)
    padding = (0, 0) * (x.ndim - 3) + (0, -x.shape[2] % size)
    return F.pad(x, padding).unflatten(2, (-1, size))


def from_chunks(x: Tensor, sequence: Sequence) -> Tensor:
    """[batch, heads, chunks, size, dim] -> [batch, seq, heads, dim], without the filled end."""
    return x.flatten(2, 3)[:, :, : sequence.document_ids.shape[1]].transpose(1, 2)


def documents_in_chunks(documents: Tensor, size: int) -> Tensor:
    """[batch, seq] -> [batch, 1, chunks, size], the end filled up with a document of its own."""
    padded = F.pad(documents, (0, -documents.shape[1] % size), value=-1)
    return padded.unflatten(1, (-1, size)).unsqueeze(1)


def decay_between(log_decay: Tensor, documents: Tensor) -> Tensor:
    """[.., positions] log decays -> [.., to, from] decays, zero between two documents.

    Sums of the decays in between, rather than differences of running sums, so that nothing of
    another document comes in by rounding.
    """
    size = log_decay.shape[-1]
    causal = torch.ones(size, size, dtype=torch.bool, device=log_decay.device).tril()
    after = log_decay.unsqueeze(-1).masked_fill(~causal.tril(-1), 0.0)
    connected = causal & (documents.unsqueeze(-1) == documents.unsqueeze(-2))
    return after.cumsum(-2).masked_fill(~connected, -math.inf).exp()


def decay_from_chunk_before(log_decay: Tensor, documents: Tensor) -> Tensor:
    """[.., chunks, size] log decays -> how much of the state before its chunk a position sees.

    Zero for a position whose document began in its chunk; the last one's is what the state keeps.
    """
    before = F.pad(documents[..., :-1, -1], (1, 0), value=-2)
    continues = documents == before.unsqueeze(-1)
    return log_decay.cumsum(-1).masked_fill(~continues, -math.inf).exp()


def states_at_start(transition: Tensor, added: Tensor) -> Tensor:
    """The state S <- transition S + added before each chunk, zero before the first.

    transition [batch, heads, chunks, n, n], added [batch, heads, chunks, n, m]; returns added's
    shape. One operator to a compiler, whose graph would grow with a loop over the chunks.
    """
    return torch.ops.sft.states_at_start(transition, added)


@torch.library.custom_op("sft::states_at_start", mutates_args=())
def _states_at_start(transition: Tensor, added: Tensor) -> Tensor:
    states = added.new_zeros(added.shape)
    before = states.flatten(0, 1).unbind(1)
    steps = zip(transition.flatten(0, 1).unbind(1), added.flatten(0, 1).unbind(1), strict=True)
    for at, (matrix, new) in enumerate(itertools.islice(steps, len(before) - 1)):
        torch.baddbmm(new, matrix, before[at], out=before[at + 1])
    return states


def _keep_states(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _states_at_start_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The same recurrence from the last chunk to the first, with the matrices transposed."""
    transition, states = ctx.saved_tensors
    last_first = states_at_start(transition.mT.flip(2), gradient.flip(2))
    added = last_first.flip(2)
    return added @ states.mT, added


_states_at_start.register_fake(lambda _transition, added: added.new_empty(added.shape))
_states_at_start.register_autograd(_states_at_start_back, setup_context=_keep_states)
