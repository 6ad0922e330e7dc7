"""GLM-4.5 355B: full attention with biases and partial rotation, three dense layers, then MoE."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import glm
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 151552,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "num_hidden_layers": 92,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,  # not a field of the class: without it, hidden_size / heads is taken
    "attention_bias": True,
    "use_qk_norm": True,
    "first_k_dense_replace": 3,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "n_group": 1,
    "topk_group": 1,
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "eos_token_id": [151329, 151336, 151338],
    "pad_token_id": 151329,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1000000.0,
        "partial_rotary_factor": 0.5,
    },
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "n_routed_experts": 16,
}

NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 192,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "moe_intermediate_size": 40,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
}

MODEL = TinyModel(
    name="glm4_moe",
    model_type="glm4_moe",
    source=Source(
        repository="zai-org/GLM-4.5",
        origin="recalled, agrees with THUDM/slime scripts/models/glm4.5-355B-A32B.sh",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    chat=glm(first=151329),
)
