"""transformers' Trainer, asked for FSDP on CPUs, trains without sharding anything.

    python reproduce.py

Trains a small Llama on two gloo processes with `TrainingArguments(fsdp=True)` and tells what the
model was wrapped in, and how many of its parameters each process holds.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import socket
import tempfile

import torch
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

RANKS = 2
TOKENS = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(0))


def train(rank: int, port: int, folder: str) -> None:
    """Two steps; rank 0 tells."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4,
    )  # fmt: skip
    arguments = TrainingArguments(
        folder, max_steps=2, per_device_train_batch_size=1, use_cpu=True, fsdp=True,
        fsdp_config={"version": 2}, save_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in TOKENS]
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows)
    trainer.train()
    if rank == 0:
        modules = list(trainer.model_wrapped.modules())
        whole = sum(parameter.numel() for parameter in LlamaForCausalLM(config).parameters())
        held = sum(parameter.numel() for parameter in trainer.model.parameters())
        print(f"distributed type: {trainer.accelerator.distributed_type.value}")
        print(f"wrapped in: {type(trainer.model_wrapped).__name__}")
        print(f"modules under FSDP2: {sum(isinstance(one, FSDPModule) for one in modules)}")
        print(f"parameters held by rank 0: {held} of {whole}")


def main() -> None:
    """Start the processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (port, tempfile.mkdtemp()), nprocs=RANKS)
    print("exit code 0")


if __name__ == "__main__":
    main()
