"""Two sparse attentions lose their sparsity under an attention function of one's own.

    python reproduce.py

Registers transformers' own sdpa function and boolean mask under another name, and runs small random
models with both names. The logits should be equal. With deepseek_v4, prints which compressed
entries a query is let see.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from typing import Any

import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    GlmMoeDsaConfig,
    GlmMoeDsaForCausalLM,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

TOKENS = torch.arange(40)[None]
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "q_lora_rank": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "index_n_heads": 2,
    "index_topk": 4,
}
masks: list[Tensor] = []


def same_as_sdpa(module: Any, query: Tensor, *arguments: Any, **kwargs: Any) -> Any:
    masks.append(arguments[2])
    return sdpa_attention_forward(module, query, *arguments, **kwargs)


AttentionInterface.register("mine", same_as_sdpa)
AttentionMaskInterface.register("mine", sdpa_mask)


@torch.no_grad()
def logits(kind: Any, config: Any, name: str) -> Tensor:
    torch.manual_seed(0)
    model = kind._from_config(config, attn_implementation=name).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    out: Tensor = model(input_ids=TOKENS, use_cache=False).logits
    return out


def main() -> None:
    glm = GlmMoeDsaConfig(
        **SMALL,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=16,
        index_head_dim=16,
        first_k_dense_replace=0,
        num_key_value_heads=4,
        intermediate_size=32,
        pad_token_id=None,
    )
    own, same = (logits(GlmMoeDsaForCausalLM, glm, name) for name in ("sdpa", "mine"))
    print(
        f"glm_moe_dsa: logits differ by up to {(own - same).abs().max():.2g}; the last query is "
        f"let see {masks[-1][0, 0, -1].sum()} of {TOKENS.shape[1]} keys, index_topk is 4"
    )
    deepseek = DeepseekV4Config(
        **SMALL,
        layer_types=["heavily_compressed_attention"],
        mlp_layer_types=["moe"],
        head_dim=16,
        qk_rope_head_dim=4,
        o_groups=2,
        o_lora_rank=8,
        sliding_window=8,
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    )
    logits(DeepseekV4ForCausalLM, deepseek, "mine")
    entries = masks[-1][0, 0, :, TOKENS.shape[1] :].int()
    print(
        f"deepseek_v4: of five entries of 8 tokens, query 15 is let see {entries[15].tolist()} "
        "and should see [1, 1, 0, 0, 0]"
    )


if __name__ == "__main__":
    main()
