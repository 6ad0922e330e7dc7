"""deepseek_v4's compressors cut their windows across packed documents.

    python reproduce.py

Runs a small random deepseek_v4 on two documents packed into one row by `position_ids`. Prints how
far the second one's logits move when the first one's tokens change, and how far they are from those
of the second one alone, for each kind of layer.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

FIRST, SECOND, VOCABULARY = 51, 60, 256  # the first is no multiple of a window
KINDS = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")


def small(kind: str) -> DeepseekV4ForCausalLM:
    config = DeepseekV4Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        layer_types=[kind],
        mlp_layer_types=["moe"],
        num_attention_heads=4,
        head_dim=16,
        qk_rope_head_dim=4,
        q_lora_rank=16,
        o_groups=2,
        o_lora_rank=8,
        sliding_window=8,
        compress_rates=dict(zip(KINDS[1:], (4, 8), strict=True)),
        index_n_heads=2,
        index_head_dim=8,
        index_topk=4,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
    )
    torch.manual_seed(0)
    model = DeepseekV4ForCausalLM._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


@torch.no_grad()
def main() -> None:
    positions = torch.cat([torch.arange(FIRST), torch.arange(SECOND)])[None]
    for kind in KINDS:
        model = small(kind)
        tokens = torch.randint(0, VOCABULARY, positions.shape)
        changed = tokens.clone()
        changed[:, :FIRST] = torch.randint(0, VOCABULARY, (1, FIRST))
        packed, other = (
            model(input_ids=x, position_ids=positions, use_cache=False).logits[0, FIRST:]
            for x in (tokens, changed)
        )
        alone = model(input_ids=tokens[:, FIRST:], use_cache=False).logits[0]
        print(f"{kind}: {far(packed, other)} when the first changes, {far(packed, alone)} alone")


def far(logits: Tensor, others: Tensor) -> str:
    moved = (logits - others).abs().amax(-1)
    return f"{(moved > 1e-5).sum()} of {SECOND} positions differ by up to {moved.max():.1e}"


if __name__ == "__main__":
    main()
