"""Llama 3.2 1B: full attention with grouped queries, dense MLP, tied embeddings."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}

# Key/value heads stay at a number that four ranks divide, as the published eight do.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 16,
}

CHAT = Chat(
    specials={
        "<|begin_of_text|>": 128000,
        "<|end_of_text|>": 128001,
        "<|finetune_right_pad_id|>": 128004,
        "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007,
        "<|eot_id|>": 128009,
    },
    bos="<|begin_of_text|>",
    eos="<|end_of_text|>",
    pad="<|finetune_right_pad_id|>",
    start="<|begin_of_text|>",
    headers={
        role: f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        for role in ("system", "user", "assistant", "tool")
    },
    end="<|eot_id|>",
)

MODEL = TinyModel(
    name="llama",
    model_type="llama",
    source=Source(
        repository="meta-llama/Llama-3.2-1B",
        origin="recalled, agrees with a third-party copy of config.json at commit 4e20de36",
        ungated="unsloth/Llama-3.2-1B",
    ),
    published=PUBLISHED,
    tiny={},
    nano=NANO,
    nano_layers=2,
    chat=CHAT,
)
