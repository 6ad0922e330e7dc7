"""MiniMax-M2: full attention with one norm over all heads, sparse MLP with a correction bias."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 200064,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rotary_dim": 64,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 196608,
    "tie_word_embeddings": False,
    "bos_token_id": 200034,
    "eos_token_id": 200020,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
}

TINY: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 64, "num_local_experts": 16}

NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 40,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "rotary_dim": 8,
    "num_local_experts": 16,
    "num_experts_per_tok": 4,
}

CHAT = Chat(
    specials={"]!p~[": 200000, "]~b]": 200019, "[e~[": 200020, "]~!b[": 200034},
    bos="]~!b[",
    eos="[e~[",
    pad="]!p~[",
    start="]~!b[",
    headers={
        "system": "]~b]system\n",
        "user": "]~b]user\n",
        "assistant": "]~b]ai\n",
        "tool": "]~b]tool\n",
    },
    end="[e~[\n",
)

MODEL = TinyModel(
    name="minimax_m2",
    model_type="minimax_m2",
    source=Source(
        repository="MiniMaxAI/MiniMax-M2",
        origin="class defaults of transformers 5.24, rotary_dim and special tokens recalled",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    nano_layers=2,
    chat=CHAT,
)
