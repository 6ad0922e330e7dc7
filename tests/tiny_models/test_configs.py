"""What the two scales keep of the published configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import tiny_models
from tiny_models.reduction import PER_LAYER, fewest_leading, layer_kinds

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = {
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
}
# The only values besides widths and layers that `tiny` may change.
PICKS: dict[str, dict[str, Any]] = {
    "glm_moe_dsa": {"index_topk": 128},
    "deepseek_v4": {"index_topk": 64},
    "qwen4_exp": {"indexer_budget": 128, "ngram_vocab_size_base": 1000},
}
# Billions of parameters the releases advertise (with qwen4_exp's table, without MTP layers).
ADVERTISED = {
    "deepseek_v4": 284,
    "glm4_moe": 353,
    "glm_moe_dsa": 744,
    "gpt_oss": 20.9,
    "laguna": 33.4,
    "llama": 1.24,
    "minimax_m2": 229,
    "nemotron_h": 31.6,
    "qwen3": 0.6,
    "qwen3_5_dense": 0.75,
    "qwen3_5_moe": 34.7,
    "qwen3_moe": 30.5,
    "qwen4_exp": 177,
}
PUBLISHED_VOCABULARY = {
    "deepseek_v4": 129280,
    "glm4_moe": 151552,
    "glm_moe_dsa": 154880,
    "gpt_oss": 201088,
    "laguna": 100352,
    "llama": 128256,
    "minimax_m2": 200064,
    "nemotron_h": 131072,
    "qwen3": 151936,
    "qwen3_5_dense": 248320,
    "qwen3_5_moe": 248320,
    "qwen3_moe": 151936,
    "qwen4_exp": 248320,
}
ARCHS = sorted(ADVERTISED)
every_arch = pytest.mark.parametrize("arch", ARCHS)


def dense() -> set[str]:
    """The architectures without experts, as the sweep is told."""
    confs = map(OmegaConf.load, (ROOT / "conf" / "arch").glob("*.yaml"))
    return {conf.name for conf in confs if not conf.moe}


def values(config: Any) -> dict[str, Any]:
    return json.loads(json.dumps(config.to_dict(), default=str))


def changed(arch: str, scale: str) -> dict[str, Any]:
    """The values in which a scale differs from the published configuration."""
    model = tiny_models.get(arch)
    full, small = values(model.published_config()), values(model.config(scale))
    return {key: small.get(key) for key in full | small if full.get(key) != small.get(key)}


def experts(config: Any) -> int:
    return getattr(config, "num_local_experts", None) or config.num_experts


def on_meta(config: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def test_every_architecture_has_figures_of_its_release_here() -> None:
    assert tiny_models.names() == ARCHS == sorted(PUBLISHED_VOCABULARY)


@every_arch
def test_the_published_values_name_their_source(arch: str) -> None:
    source = tiny_models.get(arch).source
    assert source.repository.count("/") == 1
    assert source.revision
    assert source.origin


@every_arch
def test_tiny_changes_layers_expert_widths_and_picks_only(arch: str) -> None:
    allowed = {"num_hidden_layers", *PER_LAYER} | (set() if arch in dense() else WIDTHS)
    others = {k: v for k, v in changed(arch, "tiny").items() if k not in allowed}
    assert others == PICKS.get(arch, {})


@every_arch
def test_tiny_has_the_published_vocabulary(arch: str) -> None:
    assert tiny_models.get(arch).config("tiny").vocab_size == PUBLISHED_VOCABULARY[arch]


@every_arch
def test_moe_archs_are_narrower_with_fewer_experts_at_tiny(arch: str) -> None:
    model = tiny_models.get(arch)
    full, small = model.published_config(), model.config("tiny")
    if arch in dense():
        assert small.hidden_size == full.hidden_size
    else:
        assert small.hidden_size < full.hidden_size
        assert experts(small) < experts(full)


@every_arch
@pytest.mark.parametrize("scale", ["tiny", "nano"])
def test_every_layer_kind_of_the_full_model_occurs(arch: str, scale: str) -> None:
    model = tiny_models.get(arch)
    full, small = layer_kinds(model.published_config()), layer_kinds(model.config(scale))

    def named(kinds: list[set[str]]) -> set[str]:
        # Head counts shrink at nano, and stand for the attention kind they go with.
        return {kind for shown in kinds for kind in shown if "heads" not in kind}

    assert named(small) == named(full)
    kept = [{k for k in shown if "heads" not in k} for shown in full[: len(small)]]
    assert [{k for k in shown if "heads" not in k} for shown in small] == kept


@every_arch
def test_tiny_keeps_the_fewest_leading_layers(arch: str) -> None:
    model = tiny_models.get(arch)
    full, count = layer_kinds(model.published_config()), model.config("tiny").num_hidden_layers
    assert set().union(*full[: count - 1]) < set().union(*full) or count == 1


def test_the_fewest_leading_layers_end_where_the_last_kind_first_shows() -> None:
    kinds = [{"full"}, {"full"}, {"sliding"}, {"full"}, {"sliding", "dense"}, {"full"}]
    assert fewest_leading(kinds) == 5
    assert fewest_leading([{"full"}] * 9) == 1


@every_arch
def test_attention_and_indexer_tensors_at_tiny_have_the_published_shapes(arch: str) -> None:
    """Dimension by dimension, but for those that are the hidden size."""
    model = tiny_models.get(arch)
    small = model.config("tiny")
    wide = model.published_config()
    names = {
        key: getattr(small, key) for key in PER_LAYER if isinstance(getattr(small, key, 0), list)
    }
    whole = dict(model.published) | names | {"num_hidden_layers": small.num_hidden_layers}
    for spelling in ("hybrid_override_pattern", "compress_ratios", "num_hash_layers"):
        whole.pop(spelling, None)
    if "ngram_vocab_size_base" in whole:  # 51 billion values even on the meta device are slow
        whole["ngram_vocab_size_base"] = small.ngram_vocab_size_base
    if "layers_block_type" in whole:
        whole.pop("layer_types"), whole.pop("num_hidden_layers")
    published = dict(on_meta(type(small)(**whole)).named_parameters())
    compared = 0
    for name, tensor in on_meta(small).named_parameters():
        if not any(part in name for part in ("attn.", "indexer", "compressor", "mixer.")):
            continue
        if "experts" in name or "mixer.gate" in name or "hyper_connection" in name:
            continue
        for ours, theirs in zip(tensor.shape, published[name].shape, strict=True):
            hidden = (ours, theirs) == (small.hidden_size, wide.hidden_size)
            assert ours == theirs or hidden, f"{name}: {tensor.shape} {published[name].shape}"
        compared += 1
    assert compared >= 4 * small.num_hidden_layers // 2


@every_arch
def test_no_expert_matrix_of_nano_is_square(arch: str) -> None:
    for name, tensor in on_meta(tiny_models.get(arch).config("nano")).named_parameters():
        if "expert" in name and tensor.ndim >= 2:
            assert len(set(tensor.shape[-2:])) == 2, f"{name} {tuple(tensor.shape)}"


# Dimensions that are small as published, whatever the widths.
NARROW = ("conv1d", "shared_expert_gate", "hc", "hyper_connection", "position_bias")


@every_arch
def test_no_dimension_of_nano_is_smaller_than_eight_ranks(arch: str) -> None:
    for name, tensor in on_meta(tiny_models.get(arch).config("nano")).named_parameters():
        if not any(part in name for part in NARROW):
            assert min(tensor.shape) >= 8, f"{name} {tuple(tensor.shape)}"


@every_arch
def test_heads_and_experts_of_nano_divide_by_four(arch: str) -> None:
    config = tiny_models.get(arch).config("nano")
    counts = {
        key: value
        for key, value in config.to_dict().items()
        if key.startswith(
            ("num_attention_heads", "linear_num", "mamba_num", "index_n", "indexer_n")
        )
        or key in ("num_experts", "num_local_experts", "n_routed_experts", "n_groups", "o_groups")
    }
    assert counts
    for key, value in counts.items():
        for count in value if isinstance(value, list) else [value]:
            assert count % 4 == 0, key


@every_arch
def test_nano_keeps_key_value_heads_on_the_published_side_of_four_ranks(arch: str) -> None:
    model = tiny_models.get(arch)
    full, nano = model.published_config(), model.config("nano")
    assert (full.num_key_value_heads < 4) == (nano.num_key_value_heads < 4)
    assert full.num_key_value_heads % 4 == 0 or full.num_key_value_heads == nano.num_key_value_heads


def test_one_vocabulary_is_not_divided_by_four_ranks() -> None:
    uneven = [a for a in ARCHS if tiny_models.get(a).config("nano").vocab_size % 4]
    assert uneven == ["qwen3"]


@every_arch
@pytest.mark.parametrize("scale", ["tiny", "nano"])
def test_special_ids_of_the_config_are_special_tokens(arch: str, scale: str) -> None:
    model = tiny_models.get(arch)
    config = model.config(scale)
    ids = set(model.chat.special_ids(config.vocab_size).values())
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = getattr(config, key)
        wanted = value if isinstance(value, list) else [value]
        assert {i for i in wanted if i is not None} <= ids, key


def test_an_unknown_arch_is_told_the_nearest_name() -> None:
    with pytest.raises(tiny_models.TinyModelError, match=r"'qwen3_mo'.*did you mean 'qwen3_moe'"):
        tiny_models.get("qwen3_mo")


def test_an_unknown_scale_is_told_the_scales() -> None:
    with pytest.raises(tiny_models.TinyModelError, match="'huge': choose one of tiny, nano"):
        tiny_models.get("llama").config("huge")


@every_arch
def test_the_published_configuration_has_the_advertised_size(arch: str) -> None:
    full = on_meta(tiny_models.get(arch).published_config())
    billions = sum(p.numel() for p in full.parameters()) / 1e9
    assert billions == pytest.approx(ADVERTISED[arch], rel=0.02)
