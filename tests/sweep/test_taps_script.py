"""`python -m sweep_taps`: a script runs as by itself, and its Trainer's batches are shown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sweep_taps
from sweep_taps import __main__ as script

ROWS = {
    "input_ids": torch.tensor([[5, 6, 7, 0]]),
    "labels": torch.tensor([[-100, 6, 7, -100]]),
    "attention_mask": torch.tensor([[1, 1, 1, 0]]),
}


class FakeTrainer:
    """What of transformers' `Trainer` is looked at."""

    state = SimpleNamespace(global_step=2)

    def training_step(self, model: Any, inputs: Any, more: int = 0) -> int:
        return len(inputs["input_ids"]) + more


def test_each_training_step_shows_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sweep_taps.VARIABLE, str(tmp_path))
    trainer = type("Watched", (FakeTrainer,), {})
    script.show(trainer)
    assert trainer().training_step(None, ROWS, more=1) == 2, "it trains as before"
    [line] = (tmp_path / "batches-0.jsonl").read_text().splitlines()
    shown = json.loads(line)
    assert (shown["step"], shown["input_ids"], shown["padding"]) == (3, [5, 6, 7, 0], 1)
    assert (shown["position_ids"], shown["labels_of"]) == ([0, 1, 2, 3], "token")


@pytest.mark.parametrize("as_module", [False, True])
def test_a_script_runs_with_its_own_arguments_and_neighbours(
    as_module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(sweep_taps.VARIABLE, raising=False)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    monkeypatch.syspath_prepend(str(tmp_path)) if as_module else None
    (tmp_path / "neighbour_of_it.py").write_text("WORD = 'from beside it'\n")
    (tmp_path / "its_script.py").write_text(
        "import sys, neighbour_of_it, pathlib\n"
        "pathlib.Path(sys.argv[1]).write_text(__name__ + ' ' + neighbour_of_it.WORD)\n"
    )
    words = ["-m", "its_script"] if as_module else [str(tmp_path / "its_script.py")]
    monkeypatch.setattr("sys.argv", ["sweep_taps"])
    script.main([*words, str(tmp_path / "out")])
    assert (tmp_path / "out").read_text() == "__main__ from beside it"


@pytest.mark.parametrize(("words", "code"), [([], 2), (["--help"], 0)])
def test_without_a_script_it_says_how_it_is_used(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(words)
    assert ended.value.code == code
    assert "torchrun --nproc-per-node 2 -m sweep_taps" in capsys.readouterr().out
