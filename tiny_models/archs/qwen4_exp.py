"""Qwen4-Exp: gated delta nets and indexed attention in several streams, n-gram embeddings, MoE."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import qwen
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 248320,
    "hidden_size": 2560,
    "num_hidden_layers": 48,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "output_gate_type": "sigmoid",
    "hc_count": 4,
    "hc_lowrank": 320,
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "ple_layer_ids": [2],  # counted from one
    "ple_embed_dim": 2560,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20000000,
    "make_ngram_vocab_size_divisible_by": 128,
    "split_ngram_parts": 128,
    "seed": 1234,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "bos_token_id": 248044,
    "eos_token_id": 248044,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
    },
}

# The n-gram table has 51 billion values as published. A budget of 2048 keys would drop none in the
# documents of a test; 128 is what GLM's indexer is given.
TINY: dict[str, Any] = {
    "hidden_size": 256,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 16,
    "ngram_vocab_size_base": 1000,
    "indexer_budget": 128,
}

# As published, fewer key/value heads than four ranks, and three value heads to a key head.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "head_dim": 32,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 24,
    "hc_lowrank": 16,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 40,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "ple_embed_dim": 128,
    "ngram_vocab_size_base": 100,
    "split_ngram_parts": 4,
    "indexer_head_dim": 16,
    "indexer_budget": 32,
    "rope_parameters": PUBLISHED["rope_parameters"] | {"mrope_section": [2, 1, 1]},
}

MODEL = TinyModel(
    name="qwen4_exp",
    model_type="qwen4_exp_text",
    source=Source(
        repository="Qwen/Qwen4-Exp",
        origin="third-party copies of config.json, three of which agree",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    document_tokens={"tiny": 400, "nano": 100},
    chat=qwen(first=248044, bos="<|endoftext|>"),
)
