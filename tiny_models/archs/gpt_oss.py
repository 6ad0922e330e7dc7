"""gpt-oss 20b: sliding and full attention with sinks and biases, sparse MLP with biases."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 131072,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "eos_token_id": 200002,
    "pad_token_id": 199999,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}

TINY: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 64, "num_local_experts": 16}

# The window is shorter than most documents of the suite, so that it hides keys.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 128,
    "intermediate_size": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "sliding_window": 32,
    "num_local_experts": 16,
}

CHAT = Chat(
    specials={
        "<|startoftext|>": 199998,
        "<|endoftext|>": 199999,
        "<|return|>": 200002,
        "<|constrain|>": 200003,
        "<|channel|>": 200005,
        "<|start|>": 200006,
        "<|end|>": 200007,
        "<|message|>": 200008,
        "<|call|>": 200012,
    },
    bos="<|startoftext|>",
    eos="<|return|>",
    pad="<|endoftext|>",
    headers={
        "system": "<|start|>system<|message|>",
        "developer": "<|start|>developer<|message|>",
        "user": "<|start|>user<|message|>",
        "assistant": "<|start|>assistant<|channel|>final<|message|>",
    },
    end="<|end|>",
)

MODEL = TinyModel(
    name="gpt_oss",
    model_type="gpt_oss",
    source=Source(
        repository="openai/gpt-oss-20b",
        origin="class defaults of transformers 5.24 (the 120b's) and recall, agrees with a "
        "third-party account of config.json (EchoCog/gpt-oss-20b)",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    chat=CHAT,
)
