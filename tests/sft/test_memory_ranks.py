"""Memory features over several ranks, and the operators that exchange tokens between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

import sft.context.exchange
import sft.moe.experts  # noqa: F401 - both define operators
from sft import config
from sft.errors import ConfigError
from sft.memory import offloading
from sft.report import counters
from sft.warm import launch

BASE = {"compile": True, "ac": "full", "act_offload": True, "optim_offload": True}


@pytest.fixture(scope="module")
def group() -> Iterator[str]:
    """The name of a group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD.group_name  # type: ignore[union-attr]
    dist.destroy_process_group()


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


CALLS: list[tuple[str, Callable[[], tuple[Any, ...]]]] = [
    ("all_to_all", lambda: (floats(1, 4, 3),)),
    ("all_gather", lambda: (floats(4, 3), 1)),
    ("reduce_scatter", lambda: (torch.randn(1, 4, 3),)),
    ("exchange_counts", lambda: (torch.tensor([[2, 1]]),)),
    ("exchange_rows", lambda: (floats(3, 2), torch.tensor([3]), torch.tensor([3]), None)),
    ("exchange_rows", lambda: (floats(4, 2), torch.tensor([3]), torch.tensor([3]), 3)),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_an_operator_is_to_the_compiler_what_it_is_to_autograd(
    group: str, name: str, arguments: Callable[[], tuple[Any, ...]]
) -> None:
    operator = getattr(torch.ops.sft, name).default
    torch.library.opcheck(operator, (*arguments(), group))


@pytest.mark.filterwarnings("error:.*deprecated:FutureWarning")
@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_no_operator_calls_what_torch_is_about_to_drop(
    group: str, name: str, arguments: Callable[[], tuple[Any, ...]]
) -> None:
    getattr(torch.ops.sft, name)(*arguments(), group)


def test_dispatched_rows_end_with_one_of_padding_and_have_gradients(group: str) -> None:
    x, sizes = floats(3, 2), torch.tensor([3])
    out = torch.ops.sft.exchange_rows(x, sizes, sizes, None, group)
    assert torch.equal(out, torch.cat([x, torch.zeros(1, 2)]))
    out.sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 2))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [(CPUOffloadPolicy(pin_memory=False), 4 * (4 * 4 + 4)), (OffloadPolicy(), 0)],
)
def test_parameters_count_as_on_the_cpu_only_where_fsdp_fetches_them(
    policy: OffloadPolicy, kept: int
) -> None:
    counters.take()
    offloading.count_parameters(fully_shard(nn.Linear(4, 4), offload_policy=policy))
    assert counters.take()["params_on_cpu"] == kept


@pytest.mark.parametrize(
    ("memory", "layout", "said"),
    [
        ({"ac": "half"}, {}, "none, full, selective"),
        ({"ep_backend": "mail"}, {}, "all_to_all, deepep"),
        ({"fullgraph": True}, {}, "set memory.compile as well"),
        ({"full_offload": True}, {}, "use layout.dp_shard=2"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(
    config_file: Path, memory: dict[str, Any], layout: dict[str, int], said: str
) -> None:
    config_file.write_text(json.dumps({"memory": memory, "layout": layout}))
    with pytest.raises(ConfigError, match=said):
        config.load(config_file)


def test_deepep_is_refused_in_one_line_without_its_library(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    memory, layout = {"ep_backend": "deepep"}, {"dp_shard": 4, "ep": 4}
    config_file.write_text(json.dumps({"memory": memory, "layout": layout}))
    with pytest.raises(ConfigError, match=r"deepep needs the deep_ep package .* use all_to_all"):
        config.load(config_file)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_ranks")
def test_every_feature_over_four_ranks_changes_no_loss_and_shows_its_effect(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    def run(name: str, **memory: Any) -> list[dict[str, Any]]:
        return train(checkpoint("qwen3_moe"), tmp_path / name, memory)

    plain = run("plain")
    runs = {
        "fullgraph": (run("fullgraph", **BASE, fullgraph=True), set(BASE_EFFECTS)),
        "selective": (
            run("selective", **BASE | {"ac": "selective"}),
            {*BASE_EFFECTS, "operators_kept"},
        ),
        "full_offload": (run("full_offload", ac="full", full_offload=True), OFFLOAD_EFFECTS),
    }
    for name, (records, effects) in runs.items():
        first = records[0]["counters"]
        for record, other in zip(records, plain, strict=True):
            for key in ("loss", "grad_norm"):
                assert record[key] == pytest.approx(other[key], rel=1e-6), name
        assert all(all(first[effect]) for effect in effects), (name, first)
        assert not any(first.get("graph_breaks", [])), name


BASE_EFFECTS = ("graphs_captured", "recomputed_layers", "act_offload_bytes", "optim_offload_bytes")
OFFLOAD_EFFECTS = {"recomputed_layers", "params_on_cpu", "optim_offload_bytes"}


def train(model: Path, folder: Path, memory: dict[str, Any]) -> list[dict[str, Any]]:
    """Two steps of a nano model in cp4_ep4."""
    return launch.train(
        folder,
        model={"path": str(model)},
        data={"seq_len": 128},
        layout={"cp": 4, "ep": 4},
        memory=memory,
        steps=2,
    )
