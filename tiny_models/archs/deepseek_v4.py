"""DeepSeek V4 Flash: one shared key/value head, compressed and indexed attention, hashed MoE."""

# ruff: noqa: RUF001 - the published special tokens are spelled with full-width bars

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 129280,
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1024,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "sliding_window": 128,
    "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0],  # the last is for the extra layer of MTP
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "num_hash_layers": 3,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-06,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 1048576,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 65536,
    },
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "index_topk": 64,
}

# The heavy compression takes 32 tokens an entry instead of 128, so that the suite's documents (20
# to 400 tokens) have several entries and its parameters a gradient; the light one stays at 4.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 64,
    "num_attention_heads": 16,
    "head_dim": 32,
    "qk_rope_head_dim": 8,
    "q_lora_rank": 48,
    "o_groups": 8,
    "o_lora_rank": 24,
    "sliding_window": 32,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 32},
    "index_n_heads": 8,
    "index_head_dim": 16,
    "index_topk": 8,
    "moe_intermediate_size": 40,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
}

CHAT = Chat(
    specials={
        "<｜begin▁of▁sentence｜>": 0,
        "<｜end▁of▁sentence｜>": 1,
        "<｜▁pad▁｜>": 2,
        "<｜User｜>": 128803,
        "<｜Assistant｜>": 128804,
    },
    bos="<｜begin▁of▁sentence｜>",
    eos="<｜end▁of▁sentence｜>",
    pad="<｜▁pad▁｜>",
    start="<｜begin▁of▁sentence｜>",
    headers={"system": "", "user": "<｜User｜>", "assistant": "<｜Assistant｜>"},
    assistant_end="<｜end▁of▁sentence｜>",
)

MODEL = TinyModel(
    name="deepseek_v4",
    model_type="deepseek_v4",
    source=Source(
        repository="deepseek-ai/DeepSeek-V4-Flash-Base",
        origin="third-party copy of config.json and class defaults of transformers 5.24",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    document_tokens={"tiny": 800, "nano": 100},
    chat=CHAT,
)
