"""Tied embeddings lose updates where the ranks do not divide the vocabulary.

    torchrun --standalone --nproc-per-node 2 reproduce.py

Prints, for a vocabulary that two ranks divide and for one that they do not, the loss of two steps
in one process and sharded over two.
"""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.distributed import DistributedConfig


def losses(path: str, distributed_config: DistributedConfig | None) -> list[float]:
    model = AutoModelForCausalLM.from_pretrained(path, distributed_config=distributed_config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(64)[None] * 15
    seen = []
    for _ in range(3):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
    return seen


def main() -> None:
    dist.init_process_group()
    for vocabulary in (1024, 1021):
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=True,
        )
        with tempfile.TemporaryDirectory() as folder:
            shared = [folder]
            dist.broadcast_object_list(shared)  # save_pretrained writes on rank 0 alone
            AutoModelForCausalLM.from_config(config).save_pretrained(shared[0])
            dist.barrier()
            single = losses(shared[0], None)
            sharded = losses(shared[0], DistributedConfig(fsdp_size=2))
            dist.barrier()
        if dist.get_rank() == 0:
            print(f"vocabulary {vocabulary}: one process {single}, two ranks {sharded}")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
