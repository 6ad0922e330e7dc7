"""Laguna XS.2: full and sliding attention with different head counts and per-head gates, MoE."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PERIOD = 4  # one full attention, then three sliding ones
LAYERS = 40

PUBLISHED: dict[str, Any] = {
    "vocab_size": 100352,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 512,
    "gating": "per-head",
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * (LAYERS // PERIOD),
    "num_attention_heads_per_layer": [48, 64, 64, 64] * (LAYERS // PERIOD),
    "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1),
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_routed_scaling_factor": 2.5,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "bos_token_id": 2,
    "eos_token_id": [2, 24],
    "rope_parameters": {
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_slow": 1.0,
            "beta_fast": 64.0,
            "attention_factor": 1.0,
            "partial_rotary_factor": 0.5,
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
        },
    },
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 16,
}

# Three quarters of the heads in full attention, as published; the window hides keys.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_attention_heads": 12,
    "num_attention_heads_per_layer": [12, 16],
    "num_key_value_heads": 4,
    "head_dim": 16,
    "sliding_window": 32,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 40,
    "num_experts": 16,
    "num_experts_per_tok": 4,
}

# The published ids with strings of our own: the tokenizer's file was not at hand.
CHAT = Chat(
    specials={
        "<|pad|>": 9,
        "<|eos|>": 2,
        "<system>": 20,
        "<user>": 22,
        "<assistant>": 23,
        "</assistant>": 24,
        "<tool>": 25,
    },
    bos="<|eos|>",
    eos="<|eos|>",
    pad="<|pad|>",
    start="<|eos|>",
    headers={
        "system": "<system>\n",
        "user": "<user>\n",
        "assistant": "<assistant>\n",
        "tool": "<tool>\n",
    },
    end="\n",
    assistant_end="</assistant>\n",
)

MODEL = TinyModel(
    name="laguna",
    model_type="laguna",
    source=Source(
        repository="poolside/laguna-XS.2",
        origin="third-party copy of config.json (XS) and class defaults of transformers 5.24",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    chat=CHAT,
)
