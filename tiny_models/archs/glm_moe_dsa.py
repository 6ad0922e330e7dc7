"""GLM-5: latent attention over the keys an indexer picks, three dense layers, then sparse MLP."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import glm
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 154880,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "first_k_dense_replace": 3,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "n_group": 1,
    "topk_group": 1,
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 202752,
    "tie_word_embeddings": False,
    "bos_token_id": None,  # the class's own default, 0, is an ordinary token
    "eos_token_id": [154820, 154827, 154829],
    "pad_token_id": 154820,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
    "index_topk": 128,
}

# As published, values are wider than the unrotated part of the keys, and no two ranks are equal.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "q_lora_rank": 64,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 32,
    "moe_intermediate_size": 40,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
}

MODEL = TinyModel(
    name="glm_moe_dsa",
    model_type="glm_moe_dsa",
    source=Source(
        repository="zai-org/GLM-5",
        origin="class defaults of transformers 5.24, the ids of special tokens recalled",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    document_tokens={"tiny": 400, "nano": 100},
    chat=glm(first=154820),
)
