"""What is in a checkpoint, and that transformers loads it as it was built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_models
from tests.tiny_models.test_configs import dense
from tiny_models import manifest, weights

Checkpoint = Callable[[str], Path]
Load = Callable[[str], tuple[Any, dict[str, Any]]]
Stored = Callable[[str], dict[str, torch.Tensor]]
every_arch = pytest.mark.parametrize("arch", tiny_models.names())

# One key of each layout as published, and how many tensors hold an expert's share of a layer.
PUBLISHED_KEYS = {
    "deepseek_v4": "model.layers.2.attn.indexer.compressor.wgate.weight",
    "glm4_moe": "model.layers.3.mlp.experts.15.gate_proj.weight",
    "glm_moe_dsa": "model.layers.3.mlp.experts.15.up_proj.weight",
    "gpt_oss": "model.layers.0.mlp.experts.gate_up_proj_bias",
    "laguna": "model.layers.1.mlp.experts.e_score_correction_bias",
    "llama": "model.layers.0.self_attn.q_proj.weight",
    "minimax_m2": "model.layers.0.block_sparse_moe.experts.15.w1.weight",
    "nemotron_h": "backbone.layers.1.mixer.experts.15.up_proj.weight",
    "qwen3": "model.layers.0.self_attn.k_norm.weight",
    "qwen3_5_dense": "model.layers.0.linear_attn.in_proj_qkv.weight",
    "qwen3_5_moe": "model.layers.0.mlp.experts.15.down_proj.weight",
    "qwen3_moe": "model.layers.0.mlp.experts.15.down_proj.weight",
    "qwen4_exp": "model.layers.1.ple.ple_embedding.ngram_embedding.shard_3.weight",
}
FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tiny_model.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


def some_ids(config: Any, length: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, config.vocab_size, (1, length), generator=generator)


@every_arch
def test_a_checkpoint_has_these_files_and_is_under_40_megabytes(
    arch: str, checkpoint: Checkpoint
) -> None:
    files = list(checkpoint(arch).iterdir())
    assert {file.name for file in files} == FILES
    assert sum(file.stat().st_size for file in files) < 40e6


@every_arch
def test_it_loads_with_no_key_missing_unexpected_or_mismatched(arch: str, load: Load) -> None:
    _, report = load(arch)
    assert not {key: found for key, found in report.items() if found}


@every_arch
def test_it_loads_with_the_logits_it_was_built_with(arch: str, load: Load) -> None:
    built = weights.build(tiny_models.get(arch).config("nano"), seed=0)
    loaded, _ = load(arch)
    ids = some_ids(loaded.config)
    with torch.no_grad():
        expected = built(input_ids=ids, use_cache=False).logits
        assert torch.equal(loaded.eval()(input_ids=ids, use_cache=False).logits, expected)


@every_arch
def test_keys_are_those_of_the_published_checkpoint(arch: str, stored: Stored) -> None:
    assert PUBLISHED_KEYS[arch] in stored(arch)
    has_head = any(key.endswith(("lm_head.weight", "head.weight")) for key in stored(arch))
    assert has_head != tiny_models.get(arch).published_config().tie_word_embeddings


@every_arch
def test_every_value_is_finite(arch: str, stored: Stored) -> None:
    for name, tensor in stored(arch).items():
        assert bool(torch.isfinite(tensor.double()).all()), name


@every_arch
def test_no_tensor_is_constant(arch: str, stored: Stored) -> None:
    for name, tensor in stored(arch).items():
        assert tensor.numel() == 1 or tensor.unique().numel() > 1, name


@every_arch
def test_another_seed_changes_every_tensor_that_is_not_derived_from_the_config(
    arch: str, stored: Stored, tmp_path: Path
) -> None:
    """So no value is one that any initialisation would put back."""
    from safetensors.torch import load_file

    other = load_file(tiny_models.write(arch, "nano", 1, tmp_path / arch) / "model.safetensors")
    same = {name for name, tensor in stored(arch).items() if torch.equal(tensor, other[name])}
    derived = {
        name for name in other if "ple_embedding" in name and not other[name].is_floating_point()
    }
    assert same == derived


def test_a_tensor_left_uninitialised_stops_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    def left_as_found(self: Any) -> None:
        for parameter in self.parameters():
            parameter.data.zero_()
        self.lm_head.weight.data[5, 5] = float("nan")

    monkeypatch.setattr(LlamaForCausalLM, "initialize_weights", left_as_found)
    with pytest.raises(tiny_models.TinyModelError, match=r"embed_tokens.*left uninitialised"):
        tiny_models.write("llama", "nano", 0, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_hash_tables_send_tokens_to_every_expert(stored: Stored) -> None:
    tables = {name: t for name, t in stored("deepseek_v4").items() if "tid2eid" in name}
    config = tiny_models.get("deepseek_v4").config("nano")
    assert len(tables) == config.mlp_layer_types.count("hash_moe")
    for table in tables.values():
        assert table.shape == (config.vocab_size, config.num_experts_per_tok)
        assert table.unique().tolist() == list(range(config.n_routed_experts))
        assert all(len(set(row)) == len(row) for row in table.tolist())
    first, second, *_ = tables.values()
    assert not torch.equal(first, second)


@pytest.mark.parametrize("arch", sorted(set(tiny_models.names()) - dense()))
def test_tokens_reach_every_expert_of_every_layer(arch: str, load: Load) -> None:
    model, _ = load(arch)
    used: dict[str, set[int]] = {}
    handles = [
        module.register_forward_pre_hook(
            lambda _m, args, name=name: used.setdefault(name, set()).update(
                args[1].flatten().tolist()
            )
        )
        for name, module in model.named_modules()
        if name.endswith(".experts")
    ]
    with torch.no_grad():
        model(input_ids=some_ids(model.config, 256), use_cache=False)
    for handle in handles:
        handle.remove()
    assert used
    for name, experts in used.items():
        assert experts == set(range(16)), name


@every_arch
def test_the_configuration_leaves_the_trainer_its_choices(
    arch: str, checkpoint: Checkpoint
) -> None:
    config = json.loads((checkpoint(arch) / "config.json").read_text())
    assert not [key for key in config if "attn_implementation" in key or "experts_impl" in key]
    assert config["dtype"] == "float32"
    assert "auto_map" not in config


def test_the_manifest_says_what_the_checkpoint_is(checkpoint: Checkpoint) -> None:
    about = json.loads((checkpoint("llama") / "tiny_model.json").read_text())
    assert (about["arch"], about["scale"], about["seed"]) == ("llama", "nano", 0)
    assert set(about["files"]) == FILES - {"tiny_model.json"}
    assert about["versions"] == manifest.versions()


def test_building_leaves_the_callers_torch_as_it_was() -> None:
    torch.manual_seed(3)
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        built = weights.build(tiny_models.get("qwen3").config("nano"), seed=0)
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(dtype)
    assert torch.equal(torch.get_rng_state(), state)
    assert {p.dtype for p in built.parameters()} == {torch.float32}


@pytest.mark.slow
def test_a_tiny_checkpoint_in_several_files_loads_as_it_was_built(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = tiny_models.write("laguna", "tiny", 0, tmp_path / "out")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert manifest.problem(folder) is None
    loaded, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not {key: found for key, found in report.items() if found}
    built = weights.build(tiny_models.get("laguna").config("tiny"), seed=0).state_dict()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, built[name]), name
