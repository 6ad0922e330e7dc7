"""Qwen3 30B-A3B: full attention with few key/value heads, sparse MLP without a shared expert."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import qwen
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,  # not a field of the class: without it, hidden_size / heads is taken
    "max_position_embeddings": 40960,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "num_experts": 16,
}

# Heads and key/value heads stay as published: eight queries share a key, four ranks a key each.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 320,
    "head_dim": 16,
    "moe_intermediate_size": 48,
    "num_experts": 16,
    "num_experts_per_tok": 4,
}

MODEL = TinyModel(
    name="qwen3_moe",
    model_type="qwen3_moe",
    source=Source(
        repository="Qwen/Qwen3-30B-A3B",
        origin="recalled, agrees with THUDM/slime scripts/models/qwen3-30B-A3B.sh",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    nano_layers=2,
    chat=qwen(first=151643, eos="<|im_end|>"),
)
