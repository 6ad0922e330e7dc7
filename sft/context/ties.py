"""Choices with their margins, kept by place, and replayed where two scores tie.

A margin is by how much the worst score that was picked is above the best one left out, as a share
of the token's largest. Where it is within rounding, another layout may pick otherwise, and training
is another from there on. So a run keeps its close choices, and another run can be told to choose
likewise where the margin is below a bound, recomputation included; its routers' weights stay its
own. A place is a row of the global batch and a token in it, a key is known by its position in its
document: both are the same in every layout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sft.config import WIDEST_TIE, ChoicesConfig
from sft.context.sequence import Sequence
from sft.errors import ConfigError
from sft.report import counters

KEY = "{step}.{number}.{column}"
COLUMNS = ("places", "margins", "picked")
BITS = 8
NUMBER = "choice_number"

Choices = tuple[Tensor, Tensor, Tensor]
"""[n] places, [n] margins, [n, candidates / 8] bits of what was picked, by candidate."""


class Book:
    """What the process keeps of its own choices, and replays of another run's."""

    def __init__(self) -> None:
        self.keeps = False
        self.step = 0
        self.kept: dict[tuple[int, int], list[Choices]] = defaultdict(list)
        self.replayed: dict[tuple[int, int], Choices] = {}
        self.below = 0.0

    def open(self, config: ChoicesConfig) -> None:
        """Begin anew, as a run's settings say; raises `ConfigError`."""
        self.__init__()  # type: ignore[misc]
        self.keeps, self.below = config.keep, config.below
        if config.replay is not None:
            self.replayed = read(Path(config.replay))

    def close_step(self) -> None:
        """Forget of the step's choices those that are not close."""
        for key, noted in list(self.kept.items()):
            if key[0] == self.step:
                self.kept[key] = [_close(pick) for pick in noted]

    def write(self, folder: Path, rank: int) -> None:
        """This rank's close choices, in a file of its own."""
        if not self.keeps:
            return
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {}
        for (step, number), noted in self.kept.items():
            for column, values in zip(COLUMNS, _joined(noted), strict=True):
                tensors[KEY.format(step=step, number=number, column=column)] = values
        save_file(tensors, folder / f"rank-{rank}.safetensors")


book = Book()


def number_all(modules: list[nn.Module]) -> None:
    """Give each module that chooses its number.

    A tensor, on the CPU: as a number it would make the compiled graph of each layer another one.
    """
    for number, module in enumerate(modules):
        setattr(module, NUMBER, torch.tensor(number))


def settled(
    sequence: Sequence, module: nn.Module, picked: Tensor, scores: Tensor, positions: Tensor
) -> Tensor:
    """What an indexer picks [batch, queries, candidates], kept, or replayed where it is a tie.

    scores are -inf where a query does not see the candidate, positions [batch, candidates].
    """
    if sequence.places is None or not (book.keeps or book.replayed):
        return picked
    places = sequence.local(sequence.places).flatten()
    known = positions.unsqueeze(1).expand_as(picked).flatten(0, 1)
    flat, seen = picked.flatten(0, 1), scores.flatten(0, 1)
    number = getattr(module, NUMBER)
    if book.replayed:
        return torch.ops.sft.replay_choices(flat, seen, known, places, number).view_as(picked)
    return torch.ops.sft.keep_choices(flat, flat, seen, known, places, number).view_as(picked)


def margins(picked: Tensor, scores: Tensor) -> Tensor:
    """[n] of picked and scores [n, candidates]; infinite where nothing is left out."""
    worst = scores.masked_fill(~picked, float("inf")).amin(-1)
    best_out = scores.masked_fill(picked, float("-inf")).amax(-1)
    size = scores.masked_fill(scores.isinf(), 0.0).abs().amax(-1).clamp(min=1e-30)
    return ((worst - best_out) / size).float()


def packed(picked: Tensor, known: Tensor) -> Tensor:
    """[n, candidates] booleans -> [n, bytes], a bit for each number that a candidate has."""
    size = -(-(int(known.max()) + 1) // BITS) * BITS if known.numel() else BITS
    dense = torch.zeros(len(picked), size, dtype=torch.uint8, device=picked.device)
    dense.scatter_reduce_(1, known, picked.to(torch.uint8), "amax")
    return (dense.unflatten(1, (-1, BITS)) << _shifts(picked)).sum(-1, dtype=torch.uint8)


def unpacked(bits: Tensor, known: Tensor) -> Tensor:
    """The opposite, for candidates [n, candidates] with these numbers."""
    dense = (bits.unsqueeze(-1) >> _shifts(bits) & 1).flatten(1)
    inside = known < dense.shape[1]
    return dense.gather(1, known.clamp(max=dense.shape[1] - 1)).bool() & inside


def read(folder: Path) -> dict[tuple[int, int], Choices]:
    """The choices that the ranks of a run kept, by step and number; raises `ConfigError`."""
    by_layer: dict[tuple[int, int], list[Choices]] = defaultdict(list)
    files = sorted(folder.glob("rank-*.safetensors"))
    if not files:
        raise ConfigError(f"choices.replay={folder} has no choices; name the folder of a run's")
    for path in files:
        for key, columns in _read(path):
            by_layer[key].append(columns)
    return {key: _joined(parts) for key, parts in by_layer.items()}


def _read(path: Path) -> Iterator[tuple[tuple[int, int], Choices]]:
    try:
        tensors = load_file(path)
        for name in [name for name in tensors if name.endswith(COLUMNS[0])]:
            step, number, _ = name.split(".")
            columns = (tensors[KEY.format(step=step, number=number, column=c)] for c in COLUMNS)
            yield (int(step), int(number)), tuple(columns)  # type: ignore[misc]
    except (SafetensorError, KeyError, ValueError) as error:
        raise ConfigError(f"choices.replay: {path} is damaged: {error}") from None


def _joined(parts: list[Choices]) -> Choices:
    """In one, ordered by place; the parts may have other numbers of bytes."""
    size = max(bits.shape[1] for _, _, bits in parts)
    wide = [nn.functional.pad(bits, (0, size - bits.shape[1])) for _, _, bits in parts]
    places, margins = (torch.cat([part[column] for part in parts]) for column in (0, 1))
    order = places.argsort()
    return places[order], margins[order], torch.cat(wide)[order]


def _close(choices: Choices) -> Choices:
    places, margins, bits = choices
    close = (margins < WIDEST_TIE) & (places >= 0)
    return places[close].cpu(), margins[close].cpu(), bits[close].cpu()


def _shifts(like: Tensor) -> Tensor:
    return torch.arange(BITS, dtype=torch.uint8, device=like.device)


@torch.library.custom_op("sft::keep_choices", mutates_args=())
def _keep(
    x: Tensor, picked: Tensor, scores: Tensor, known: Tensor, places: Tensor, number: Tensor
) -> Tensor:
    """A copy of `x`; what was picked [n, candidates] is kept where it is computed first."""
    if not counters.recomputing():
        noted = places, margins(picked, scores), packed(picked, known)
        book.kept[book.step, int(number)].append(noted)
    return x.clone()


@torch.library.custom_op("sft::replay_choices", mutates_args=())
def _replay(
    picked: Tensor, scores: Tensor, known: Tensor, places: Tensor, number: Tensor
) -> Tensor:
    """`picked` [n, candidates], as the other run picked at places where it was a tie."""
    if (key := (book.step, int(number))) not in book.replayed:
        return picked.clone()
    theirs, margins, bits = (x.to(picked.device) for x in book.replayed[key])
    at = torch.searchsorted(theirs, places).clamp(max=max(len(theirs) - 1, 0))
    if not len(theirs):
        return picked.clone()
    wanted = unpacked(bits[at], known) & (scores > float("-inf"))
    is_tie = (theirs[at] == places) & (margins[at] < book.below)
    is_tie &= wanted.sum(-1) == picked.sum(-1)
    return torch.where(is_tie.unsqueeze(-1), wanted, picked)


_keep.register_fake(lambda x, *_: torch.empty_like(x))
_replay.register_fake(lambda picked, *_: torch.empty_like(picked))
