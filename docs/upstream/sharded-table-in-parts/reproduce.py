"""qwen4_exp's n-gram table is loaded in the wrong order where the model is sharded.

    python reproduce.py

Saves a small random qwen4_exp, loads it whole and sharded over two gloo processes, and compares
every parameter.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig
from transformers.distributed import DistributedConfig

RANKS = 2


def save(folder: str) -> None:
    config = Qwen4ExpTextConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        hc_lowrank=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        ple_layer_ids=[1],
        ple_embed_dim=64,
        ngram_vocab_size_base=100,
        split_ngram_parts=4,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    Qwen4ExpForCausalLM(config).save_pretrained(folder)


def compare(rank: int, folder: str, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    whole = dict(Qwen4ExpForCausalLM.from_pretrained(folder).named_parameters())
    sharded = Qwen4ExpForCausalLM.from_pretrained(
        folder, distributed_config=DistributedConfig(fsdp_size=RANKS)
    )
    loaded = {name: parameter.full_tensor() for name, parameter in sharded.named_parameters()}
    if rank == 0:
        wrong = [name for name in whole if not torch.equal(whole[name], loaded[name])]
        print(f"{len(whole)} parameters, {len(wrong)} differ")
        for name in wrong:
            rows = (whole[name] != loaded[name]).any(-1)
            print(f"{name}: {rows.sum()} of {len(rows)} rows differ")
            order = [(whole[name] == row).all(-1).nonzero()[0].item() for row in loaded[name]]
            starts = [0, *(at for at in range(1, len(order)) if order[at] != order[at - 1] + 1)]
            print("rows of the file, in the order they are loaded in:", end=" ")
            ends = [*(start - 1 for start in starts[1:]), len(order) - 1]
            print(*(f"{order[a]}-{order[b]}" for a, b in zip(starts, ends, strict=True)), sep=", ")
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        save(folder)
        mp.spawn(compare, (folder, f"{folder}/store"), nprocs=RANKS)


if __name__ == "__main__":
    main()
