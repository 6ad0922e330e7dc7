"""Trainers register themselves: a module in sweep/trainers, or one that a distribution names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep import trainers
from sweep.errors import RequestError
from sweep.schema import TrainerConf, trainer_confs
from sweep.schema import trainer as registry

ADAPTER = """
from dataclasses import dataclass
from pathlib import Path
from sweep.facts import Metrics
from sweep.schema import MetricsConf, Settings, TrainerConf
from sweep.trainers import readers
from sweep.trainers.base import Command, Launch, Trainer

@dataclass
class MineConf(TrainerConf):
    name: str = "mine"
    adapter: str = "mine"
    words: int = 3

class Mine(Trainer):
    def unavailable(self, settings: Settings) -> str | None:
        return "too few words" if settings.trainer.words < 2 else None

    def needs_checkpoint(self, settings: Settings) -> bool:
        return False

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        return Command(["true"])

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        return readers.read(MetricsConf(), directory)

TRAINER = Mine()
"""
CONF = "defaults: [/schema/trainer@_here_: mine, _self_]\nname: mine\n"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is registered in the test is forgotten after it."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    trainer_confs.cache_clear()
    yield
    trainer_confs.cache_clear()
    sys.modules.pop("sweep.trainers.mine", None)


def planned(distribution: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The plan of a case of trainer `mine`, with that folder on Python's path."""
    (distribution / "conf" / "trainer").mkdir(parents=True, exist_ok=True)
    (distribution / "conf" / "trainer" / "mine.yaml").write_text(CONF)
    words = ("--config-dir", str(distribution / "conf"), "trainer=mine", "arch=llama",
             "layout=single", "feature=none", "plan=true", *words)  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "sweep", "-m", *words], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(distribution)},
    )  # fmt: skip


def install(folder: Path, adapter: str) -> None:
    """A distribution as pip leaves it."""
    (folder / "mine_adapter.py").write_text(adapter)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trainer_sweep.trainers]\nmine = mine_adapter\n")


def test_every_module_with_a_trainer_is_registered_and_loads_it() -> None:
    folder = Path(trainers.__path__[0])
    modules = {path.stem for path in folder.glob("*.py") if "\nTRAINER" in path.read_text()}
    assert modules == {conf.__module__.rpartition(".")[2] for conf in trainer_confs().values()}
    for name, conf in trainer_confs().items():
        assert trainers.load(name) is sys.modules[conf.__module__].__dict__["TRAINER"]


@pytest.mark.usefixtures("registered")
def test_a_module_among_the_adapters_registers_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match=r"trainer\.adapter=mine: no such adapter; choose from"):
        trainers.load("mine")
    (tmp_path / "mine.py").write_text(ADAPTER)
    monkeypatch.setattr(trainers, "__path__", [*trainers.__path__, str(tmp_path)])
    trainer_confs.cache_clear()
    assert trainer_confs()["mine"].__name__ == "MineConf"
    assert type(trainers.load("mine")).__name__ == "Mine"


def test_an_adapter_of_another_distribution_plans_cases_with_its_own_keys(tmp_path: Path) -> None:
    install(tmp_path, ADAPTER)
    done = planned(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 cases, 1 launches" in done.stdout
    refused = planned(tmp_path, "trainer.words=1")
    assert "not here, too few words" in refused.stdout
    assert "trainer.letters" in planned(tmp_path, "trainer.letters=1").stderr


def test_an_adapter_that_cannot_be_loaded_is_one_line_that_names_it(tmp_path: Path) -> None:
    install(tmp_path, "import nothing_of_that_name")
    done = planned(tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "sweep: trainer_sweep.trainers: mine = mine_adapter cannot be loaded: ModuleNotFoundError:"
        " No module named 'nothing_of_that_name'; repair or uninstall mine\n"
    )


@pytest.mark.usefixtures("registered")
def test_a_name_is_no_second_adapters() -> None:
    with pytest.raises(TypeError, match="Again: give `adapter` a name of its own"):

        @dataclass
        class Again(TrainerConf):
            adapter: str = "sft"

    with pytest.raises(TypeError, match="Nameless: give `adapter` a name of its own"):

        @dataclass
        class Nameless(TrainerConf):
            pass

    assert trainer_confs()["sft"].__module__ == "sweep.trainers.sft"


@pytest.mark.usefixtures("registered")
def test_a_module_without_a_trainer_says_what_it_lacks() -> None:
    @dataclass
    class Half(TrainerConf):
        adapter: str = "half"

    trainer_confs.cache_clear()
    with pytest.raises(
        RequestError, match=r"trainer\.adapter=half: .* has no TRAINER; add it there"
    ):
        trainers.load("half")
