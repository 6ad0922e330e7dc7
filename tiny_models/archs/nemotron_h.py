"""Nemotron 3 Nano 30B-A3B: one mixer a layer, each a Mamba 2, an attention or a sparse MLP."""

from __future__ import annotations

from typing import Any

from tiny_models.chat import Chat
from tiny_models.model import Source, TinyModel

PUBLISHED: dict[str, Any] = {
    "vocab_size": 131072,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 1856,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "chunk_size": 128,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "n_group": 1,
    "topk_group": 1,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

TINY: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 128,
    "n_routed_experts": 16,
}

# As published, fewer key/value heads than four ranks and a shared expert twice as wide; groups that
# four ranks divide, several heads to each; chunks shorter than most documents.
NANO: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 96,
    "intermediate_size": 40,
    "num_attention_heads": 8,
    "head_dim": 16,
    "mamba_num_heads": 16,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 4,
    "chunk_size": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 80,
}

CHAT = Chat(
    specials={"<unk>": 0, "<s>": 1, "</s>": 2, "<|im_start|>": 10, "<|im_end|>": 11},
    bos="<s>",
    eos="</s>",
    pad="<unk>",
    headers={role: f"<|im_start|>{role}\n" for role in ("system", "user", "assistant", "tool")},
    end="<|im_end|>\n",
)

MODEL = TinyModel(
    name="nemotron_h",
    model_type="nemotron_h",
    source=Source(
        repository="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        origin="third-party copy of config.json and class defaults of transformers 5.24",
    ),
    published=PUBLISHED,
    tiny=TINY,
    nano=NANO,
    chat=CHAT,
)
