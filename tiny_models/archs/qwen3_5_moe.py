"""Qwen3.5 35B-A3B: three gated delta nets to one gated full attention, sparse and shared MLP."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import qwen
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 248320,
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "eos_token_id": 248044,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
    },
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 16,
}

# As published, fewer key/value heads than four ranks, and two value heads to a key head.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "num_attention_heads": 8,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 16,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "rope_parameters": PUBLISHED["rope_parameters"] | {"mrope_section": [2, 1, 1]},
}

MODEL = TinyModel(
    name="qwen3_5_moe",
    model_type="qwen3_5_moe_text",
    source=Source(
        repository="Qwen/Qwen3.5-35B-A3B",
        origin="class defaults of transformers 5.24, the rotary settings recalled",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    chat=qwen(first=248044),
)
