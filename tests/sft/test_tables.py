"""A sharded table is read from the parts of its checkpoint, rank by rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft import tables

ROWS = 26  # in 13 parts, shared by 2, 3 or 4 ranks
TABLE = torch.arange(ROWS * 3.0).view(ROWS, 3)


@pytest.fixture(params=[(0, 2), (2, 3), (3, 4)])  # torch caches by mesh, not by rank
def mesh(request: pytest.FixtureRequest) -> Iterator[DeviceMesh]:
    """One rank without the others: reading moves nothing between ranks."""
    rank, ranks = request.param
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    yield init_device_mesh("cpu", (ranks,))
    dist.destroy_process_group()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirteen parts (the tenth after the ninth, not the first) in two files."""
    parts = {f"m.ngram_embedding.shard_{n}.weight": x for n, x in enumerate(TABLE.chunk(13))}
    for number in range(2):
        file = {key: x.clone() for key, x in list(parts.items())[number::2]}
        save_file(file, tmp_path / f"model-{number}.safetensors")
    return tmp_path


def model_with(table: Tensor) -> nn.Module:
    model = nn.Module()
    model.m = nn.Module()
    model.m.ngram_embedding = nn.Embedding(ROWS, 3)
    model.m.ngram_embedding.weight = nn.Parameter(table)
    return model


def test_every_rank_reads_the_rows_that_are_its_own(mesh: DeviceMesh, folder: Path) -> None:
    sharded = distribute_tensor(torch.zeros(ROWS, 3), mesh, [Shard(0)], src_data_rank=None)
    model = model_with(sharded)
    assert tables.reload(model, folder) == ["m.ngram_embedding.weight"]
    wanted = TABLE.chunk(mesh.size())[mesh.get_local_rank()]
    assert torch.equal(model.m.ngram_embedding.weight.to_local(), wanted)


def test_a_table_that_is_not_sharded_is_left_as_it_was_loaded(folder: Path) -> None:
    assert tables.reload(model_with(torch.zeros(ROWS, 3)), folder) == []
