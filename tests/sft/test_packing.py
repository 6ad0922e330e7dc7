from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from sft import packing
from sft.config import Config, DataConfig, ModelConfig
from sft.data import Row

Checkpoint = Callable[[str], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(packing.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations for which rows were rendered and packed."""
    seen: list[Config] = []
    build = packing.build

    def noted(config: Config) -> list[Row]:
        seen.append(config)
        return build(config)

    monkeypatch.setattr(packing, "build", noted)
    return seen


@pytest.fixture
def config(checkpoint: Checkpoint, tmp_path: Path) -> Config:
    chats = tmp_path / "chats.jsonl"
    turns = [{"role": "user", "content": "two plus two"}, {"role": "assistant", "content": "four"}]
    chats.write_text(json.dumps({"messages": turns}) + "\n")
    data = DataConfig(path=str(chats), seq_len=32)
    return Config(model=ModelConfig(path=str(checkpoint("llama"))), data=data)


def same(rows: list[Row], others: list[Row]) -> bool:
    return len(rows) == len(others) and all(
        set(row) == set(other) and all(torch.equal(row[key], other[key]) for key in row)
        for row, other in zip(rows, others, strict=True)
    )


def test_rows_are_built_once_and_read_unchanged(
    config: Config, cache: Path, built: list[Config]
) -> None:
    first, second = packing.packed_rows(config), packing.packed_rows(config)
    assert len(built) == 1
    assert same(first, second)
    assert len(list(cache.glob("rows-*.safetensors"))) == 1


@pytest.mark.usefixtures("cache")
def test_other_documents_lengths_and_tokenizers_have_rows_of_their_own(
    config: Config, built: list[Config], checkpoint: Checkpoint, tmp_path: Path
) -> None:
    packing.packed_rows(config)
    config.data.seq_len = 64
    packing.packed_rows(config)
    Path(str(config.data.path)).write_text((tmp_path / "chats.jsonl").read_text() * 2)
    packing.packed_rows(config)
    config.model.path = str(other_template(checkpoint("llama"), tmp_path / "other"))
    packing.packed_rows(config)
    assert len(built) == 4


def other_template(model: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in model.iterdir():
        if file.suffix in {".json", ".jinja"}:
            (folder / file.name).write_bytes(file.read_bytes())
    template = folder / "chat_template.jinja"
    template.write_text("Hello. " + template.read_text())
    return folder


def test_a_damaged_file_is_built_again(config: Config, cache: Path, built: list[Config]) -> None:
    rows = packing.packed_rows(config)
    (file,) = cache.glob("rows-*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    assert same(packing.packed_rows(config), rows)
    assert len(built) == 2


def test_a_disk_that_fills_up_costs_a_run_its_cache_only(
    config: Config, cache: Path, built: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_rows: Any, name: str) -> None:
        Path(name).write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(packing, "save_file", full)
    assert packing.packed_rows(config)
    assert len(built) == 1
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_where_nothing_can_be_written_rows_are_built_all_the_same(
    config: Config, built: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(packing.VARIABLE, str(tmp_path / "file" / "cache"))
    rows: Any = packing.packed_rows(config)
    assert same(packing.packed_rows(config), rows)
    monkeypatch.delenv(packing.VARIABLE)
    monkeypatch.setattr(Path, "home", no_home)
    assert same(packing.packed_rows(config), rows)
    assert len(built) == 3


def no_home() -> Path:
    """As for a user without an entry in /etc/passwd, in a container."""
    raise RuntimeError("Could not determine home directory.")
