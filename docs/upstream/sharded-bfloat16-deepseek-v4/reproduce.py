"""deepseek_v4 cannot be sharded in bfloat16: some of its parameters are kept in float32.

    python reproduce.py

Saves a small random deepseek_v4, loads it in bfloat16 and sharded as the first of two ranks, whose
messages reach nobody, and computes a forward.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tempfile

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.distributed import DistributedConfig

CONFIG = DeepseekV4Config(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=1,
    layer_types=["sliding_attention"],
    mlp_layer_types=["moe"],
    num_attention_heads=4,
    head_dim=16,
    qk_rope_head_dim=4,
    q_lora_rank=16,
    o_groups=2,
    o_lora_rank=8,
    sliding_window=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        DeepseekV4ForCausalLM(CONFIG).save_pretrained(folder)
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        for dtype in (torch.float32, torch.bfloat16):
            model = DeepseekV4ForCausalLM.from_pretrained(
                folder, dtype=dtype, distributed_config=DistributedConfig(fsdp_size=2)
            )
            try:
                model(input_ids=torch.arange(8)[None], use_cache=False)
                print(f"{dtype}: computed")
            except AssertionError as error:
                print(f"{dtype}: AssertionError: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
