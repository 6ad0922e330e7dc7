"""Qwen3.5 0.8B: three gated delta nets to one gated full attention, dense MLP, tied embeddings."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import qwen
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 248320,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
    "eos_token_id": 248044,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
    },
}

# As published, fewer key/value heads than four ranks, and one value head to a key head.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 256,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 8,
    "rope_parameters": PUBLISHED["rope_parameters"] | {"mrope_section": [2, 1, 1]},
}

MODEL = TinyModel(
    name="qwen3_5_dense",
    model_type="qwen3_5_text",
    source=Source(
        repository="Qwen/Qwen3.5-0.8B",
        origin="recalled, parameter count checked against the advertised 0.8B",
    ),
    published=PUBLISHED,
    tiny={},
    nano=NANO,
    chat=qwen(first=248044),
)
