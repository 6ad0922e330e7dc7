"""Load, sharded, a table that its checkpoint holds in parts.

transformers cuts each part for the ranks before it joins them, so that a rank gets rows of every
part where it should get the parts of its rows (docs/upstream/sharded-table-in-parts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

TABLE = re.compile(r"(.*\.ngram_embedding\.)weight")
"""Parameters whose parts are called `shard_0.weight` and so on: Qwen4's n-gram embeddings."""


def reload(model: nn.Module, folder: Path) -> list[str]:
    """Read this rank's rows of sharded tables again; returns the tables' names."""
    tables = {name: x for name, x in model.named_parameters() if isinstance(x, DTensor)}
    numbers = {name: match[1] for name in tables if (match := TABLE.fullmatch(name))}
    for name, prefix in numbers.items():
        read_rows(tables[name], parts(folder, prefix))
    return list(numbers)


@torch.no_grad()
def read_rows(table: DTensor, parts: Iterator[Any]) -> None:
    """Fill this rank's shard of a table from its parts, slices of files, in order."""
    shape, offset = compute_local_shape_and_global_offset(
        table.shape, table.device_mesh, table.placements
    )
    first, last = offset[0], offset[0] + shape[0]
    local, start = table.to_local(), 0
    for part in parts:
        end = start + part.get_shape()[0]
        low, high = max(first, start), min(last, end)
        if low < high:
            local[low - first : high - first] = part[low - start : high - start].to(local)
        start = end


def parts(folder: Path, prefix: str) -> Iterator[Any]:
    """The slices `<prefix>shard_<n>.weight` of a checkpoint's files, by number."""
    pattern = re.compile(re.escape(prefix) + r"shard_(\d+)\.weight")
    where: dict[int, tuple[Path, str]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            keys = [match for key in file.keys() if (match := pattern.fullmatch(key))]  # noqa: SIM118
        where |= {int(match[1]): (path, match[0]) for match in keys}
    for _, (path, key) in sorted(where.items()):
        with safe_open(path, "pt") as file:
            yield file.get_slice(key)
