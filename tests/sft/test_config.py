"""What is wrong with a request is said in one line, with what to change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sft import config, model, ranks
from sft.config import Config, DataConfig, LayoutConfig
from sft.errors import ConfigError

Checkpoint = Callable[[str], Path]


def loaded(path: Path, **keys: Any) -> Config:
    path.write_text(json.dumps(keys))
    return config.load(path)


def test_a_file_overrides_the_defaults_it_names(config_file: Path) -> None:
    settings = loaded(config_file, steps=7, data={"seq_len": 64})
    assert (settings.steps, settings.data.seq_len, settings.data.global_batch) == (7, 64, 4)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"data": {"seqlen": 512}}, "data.seqlen"),
        ({"steps": "many"}, "steps"),
        ({"steps": 0}, "steps=0 must be 1 or more"),
        ({"model": {"dtype": "float8"}}, "float32, bfloat16"),
        ({"model": {"attention": "flash"}}, "model.attention=flash must be one of sdpa, flex"),
        ({"model": {"linear_attention": "mamba"}}, "=mamba must be one of torch, fla"),
        (
            {"model": {"attention": "flex", "attention_dropout": 0.1}},
            "model.attention_dropout=0.1: FlexAttention drops nothing; use model.attention=sdpa",
        ),
        ({"data": {"seq_len": 510}, "layout": {"cp": 4}}, "use 512"),
        ({"data": {"global_batch": 6}, "layout": {"dp_shard": 4}}, "use 8"),
        ({"memory": {"compile_backend": "eager"}}, "set memory.compile as well"),
        ({"memory": {"compile": True, "compile_backend": "xla"}}, "one of eager, aot_eager"),
        (
            {"memory": {"compile": True, "compile_backend": "eager", "ac": "selective"}},
            "use aot_eager",
        ),
        (
            {"data": {"packed": False}, "layout": {"dp_shard": 2}},
            "use layout.dp_shard=1 and layout.cp=1",
        ),
        ({"optim": {"warmup_steps": -1}}, "optim.warmup_steps=-1 must be 0 or more"),
        ({"optim": {"lr": float("nan")}}, "optim.lr=nan must be 0 or more"),
        ({"seed": -1}, "seed=-1 must be 0 or more"),
        ({"checkpoint": {"save_at": [3, 6]}}, "save_at=6 is none of the steps from 1 to steps=5"),
        ({"layout": {"dp_shard": 4, "ep": 3}}, "layout.ep=3 does not divide the world size 4"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(
    config_file: Path, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")) as raised:
        loaded(config_file, **keys)
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_one_that_is_not_json_are_named(config_file: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        config.load(config_file)
    config_file.write_text("{steps: [")
    with pytest.raises(ConfigError, match="is not JSON"):
        config.load(config_file)


def test_a_file_that_is_no_object_or_cannot_be_read_is_named(
    config_file: Path, tmp_path: Path
) -> None:
    for text in ("[]", "3", "null"):
        config_file.write_text(text)
        with pytest.raises(ConfigError, match=r"config\.json is no JSON object"):
            config.load(config_file)
    config_file.write_bytes('{"output_dir": "café"}'.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not JSON"):
        config.load(config_file)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        config.load(tmp_path)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs config\.json and \*\.safetensors"):
        model.read_config(tmp_path)


def test_an_unknown_model_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing_known"}')
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigError, match="nothing_known"):
        model.read_config(tmp_path)


@pytest.mark.parametrize(
    ("arch", "layout", "said"),
    [
        ("qwen3_moe", LayoutConfig(cp=3), "num_attention_heads"),
        ("laguna", LayoutConfig(cp=3), "num_attention_heads_per_layer=16; use 2"),
        ("qwen3_moe", LayoutConfig(dp_shard=3, ep=3), r"does not divide the model's \d+ experts"),
        ("llama", LayoutConfig(dp_shard=2, ep=2), "llama has no experts; use 1"),
    ],
)
def test_a_layout_that_the_model_cannot_have_names_what_divides(
    checkpoint: Checkpoint, arch: str, layout: LayoutConfig, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        model.check_fits(model.read_config(checkpoint(arch)), layout)


def test_the_number_of_ranks_must_be_the_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with (
        pytest.raises(ConfigError, match="torchrun --nproc-per-node 4"),
        ranks.joined(LayoutConfig(dp_shard=4)),
    ):
        pass


def test_the_command_line_says_it_in_one_line_and_exits_2(config_file: Path) -> None:
    config_file.write_text(json.dumps({"data": {"sequence": 1}}))
    done = subprocess.run(
        [sys.executable, "-m", "sft", str(config_file)],
        capture_output=True,
        text=True,
        env=os.environ | {"WORLD_SIZE": "1"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("sft: ")
    assert "data.sequence" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_trainer_imports_neither_the_sweep_nor_the_tiny_models() -> None:
    source = "import sft.loop, sys; print({'sweep', 'tiny_models'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_data_defaults_divide_by_the_layouts_of_the_suite() -> None:
    for layout in (LayoutConfig(dp_shard=4), LayoutConfig(cp=4), LayoutConfig(dp_shard=2, cp=2)):
        config.check(Config(layout=layout, data=DataConfig()))
