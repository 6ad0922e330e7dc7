from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import provenance
from sweep.case import machine


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    for cached in (machine.this_machine, machine.gpu, machine._count):
        cached.cache_clear()
    yield
    for cached in (machine.this_machine, machine.gpu, machine._count):
        cached.cache_clear()


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$1" != -L ] && echo "NVIDIA H200, 580.159.04" && exit\n'
        'for i in 0 1 2 3; do echo "GPU $i: H200 (UUID: GPU-$i)"; done\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, ("0", "1", "2", "3")),
        ("2,3", ("2", "3")),
        ("GPU-1, GPU-2", ("GPU-1", "GPU-2")),
        ("", ()),
        ("-1", ()),
    ],
)
@pytest.mark.usefixtures("four_gpus")
def test_the_parents_choice_of_gpus_is_respected(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: tuple[str, ...]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.this_machine().gpus == gpus


@pytest.mark.usefixtures("four_gpus")
def test_a_result_on_a_gpu_says_which_and_under_which_driver() -> None:
    found = provenance.environment("cuda")
    assert (found["gpu"], found["gpu_driver"]) == ("NVIDIA H200", "580.159.04")
    assert "gpu" not in provenance.environment("cpu")


def test_without_nvidia_smi_there_is_no_gpu_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert machine.this_machine().device == "cpu"
