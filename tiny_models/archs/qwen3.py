"""Qwen3 0.6B: full attention with normalised queries and keys, dense MLP, tied embeddings."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import qwen
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}

# The one vocabulary that neither two nor four ranks divide: shards of it are uneven.
NANO: dict[str, Any] = {
    "vocab_size": 2045,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
}

MODEL = TinyModel(
    name="qwen3",
    model_type="qwen3",
    source=Source(
        repository="Qwen/Qwen3-0.6B",
        origin="recalled, agrees with third-party copies of config.json",
    ),
    published=PUBLISHED,
    tiny={},
    nano=NANO,
    nano_layers=2,
    chat=qwen(first=151643, eos="<|im_end|>"),
)
