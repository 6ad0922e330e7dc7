"""`python -m tiny_models`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tiny_models
from tiny_models import manifest
from tiny_models.cli import main

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_checkpoint_is_written_and_its_folder_printed(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    assert main(["llama", "--scale", "nano", "--seed", "3", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    about = manifest.read(out)
    assert about is not None
    assert (about["arch"], about["scale"], about["seed"]) == ("llama", "nano", 3)


def test_list_names_every_arch_with_its_source(capsys: Captured) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == tiny_models.names()
    assert all(tiny_models.get(line.split()[0]).source.repository in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lama", "--out", "x"], "unknown arch 'lama': did you mean 'llama'?"),
        (["llama"], "no folder to write to: name one with --out"),
        (["llama", "--scale", "huge", "--out", "x"], "unknown scale 'huge'"),
        (["llama", "--seed", "-1", "--out", "x"], "seed -1 is not an integer from 0"),
        (["llama", "qwen3", "--out", "x"], "one architecture at a time, not also qwen3"),
        (["llama", "--out", "x", "--published-tokenizer"], "use --scale tiny"),
        (["check-published", "lama"], "unknown arch 'lama'"),
    ],
)
def test_a_bad_request_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_termination_while_writing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import PreTrainedModel

    def save(_self: Any, folder: Path, **_: Any) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save)
    with pytest.raises(SystemExit, match="143"):
        main(["qwen3", "--out", str(tmp_path / "out")])
    assert not list(tmp_path.iterdir())


def test_importing_the_package_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, tiny_models; tiny_models.get('llama').published; "
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tiny_models", "qwen3", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}\n"), done.stderr
    assert done.stderr == ""


MINI = '''
"""Mistral as a stand-in for an architecture of one's own."""
from tiny_models.chat import chatml
from tiny_models.model import Source, TinyModel

MODEL = TinyModel(
    name="mini",
    model_type="mistral",
    source=Source(repository="somebody/mini", origin="made up"),
    published={"vocab_size": 32000, "hidden_size": 512, "intermediate_size": 768,
               "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
               "head_dim": 64, "sliding_window": None, "bos_token_id": 1, "eos_token_id": 2},
    tiny={},
    nano={"vocab_size": 1024, "hidden_size": 64, "intermediate_size": 96, "head_dim": 8},
    chat=chatml({"<unk>": 0, "<s>": 1, "</s>": 2, "<|im_start|>": 3, "<|im_end|>": 4},
                bos="<s>", eos="</s>", pad="<unk>"),
)
'''


def test_an_architecture_is_added_with_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiny_models import archs

    (tmp_path / "mini.py").write_text(MINI)
    monkeypatch.setattr(archs, "__path__", [*archs.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{archs.__name__}.mini", raising=False)
    assert "mini" in tiny_models.names()
    assert tiny_models.get("mini").config("tiny").num_hidden_layers == 1
    assert manifest.problem(tiny_models.write("mini", out=tmp_path / "out")) is None
