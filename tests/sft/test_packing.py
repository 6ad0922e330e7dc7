from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from sft import data, packing
from sft.config import Config, DataConfig, ModelConfig
from sft.data import Row
from sft.errors import ConfigError

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

    def noted(config: Config) -> packing.Packed:
        seen.append(config)
        return build(config)

    monkeypatch.setattr(packing, "build", noted)
    return seen


@pytest.fixture
def config(checkpoint: Checkpoint, tmp_path: Path) -> Config:
    chats = tmp_path / "chats.jsonl"
    turns = [{"role": "user", "content": "two plus two"}, {"role": "assistant", "content": "four"}]
    chats.write_text(json.dumps({"messages": turns}) + "\n")
    chosen = DataConfig(path=str(chats), seq_len=32)
    return Config(model=ModelConfig(path=str(checkpoint("llama"))), data=chosen)


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


def test_one_flipped_bit_in_the_file_is_not_trained_on(
    config: Config, cache: Path, built: list[Config]
) -> None:
    rows = packing.packed_rows(config)
    (file,) = cache.glob("rows-*.safetensors")
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    assert same(packing.packed_rows(config), rows)
    assert len(built) == 2


def test_other_code_that_packs_has_rows_of_its_own(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = packing.key(config, "text")
    for module in (packing, data):
        changed = tmp_path / "changed.py"
        changed.write_bytes(Path(str(module.__file__)).read_bytes() + b"#")
        with monkeypatch.context() as patch:
            patch.setattr(module, "__file__", str(changed))
            assert packing.key(config, "text") != before
    assert packing.key(config, "text") == before


@pytest.mark.usefixtures("cache")
def test_documents_that_lose_all_they_train_on_are_left_out_and_told_each_time(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = {"role": "user", "content": "two " * 40}
    long = [question, {"role": "assistant", "content": "four"}]
    with (tmp_path / "chats.jsonl").open("a") as file:
        file.write(json.dumps({"messages": long}) + "\n")
    for _ in range(2):  # built, and from the cache
        rows = packing.packed_rows(config)
        assert all((row["labels"] != data.IGNORED).any() for row in rows)
        assert "1 documents are left out: data.seq_len=32 cuts off" in capsys.readouterr().out
    config.data.seq_len = 8
    with pytest.raises(
        ConfigError, match=r"data.seq_len=8 cuts off every token that is trained on"
    ):
        packing.packed_rows(config)


def test_a_disk_that_fills_up_costs_a_run_its_cache_only(
    config: Config, cache: Path, built: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_rows: Any, name: str, _said: Any) -> None:
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
