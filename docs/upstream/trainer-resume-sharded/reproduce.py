"""transformers' Trainer cannot resume a model that transformers sharded while it loaded it.

    python reproduce.py

Trains a small Llama for two steps on two gloo processes, sharded by
`from_pretrained(distributed_config=...)`, saves after the first, and resumes from there.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import socket
import tempfile

import torch
import torch.multiprocessing as mp
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.distributed import DistributedConfig

RANKS = 2
TOKENS = torch.randint(64, (8, 16), generator=torch.Generator().manual_seed(0))


def train(rank: int, port: int, folder: str) -> None:
    """Train, save and resume; rank 0 prints how each ended."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    for only_model in (False, True):
        output = f"{folder}/{only_model}"
        print_from_first(rank, f"save_only_model={only_model}")
        for resume_from in (None, f"{output}/checkpoint-1"):
            action = "resume" if resume_from else "train and save"
            try:
                trainer(folder, output, only_model).train(resume_from_checkpoint=resume_from)
                print_from_first(rank, f"  {action}: done")
            except (RuntimeError, ValueError) as error:
                print_from_first(rank, f"  {action}: {type(error).__name__}: {last_line(error)}")


def trainer(folder: str, output: str, only_model: bool) -> Trainer:
    """Two steps on a model that is sharded over all ranks."""
    model = LlamaForCausalLM.from_pretrained(
        folder, distributed_config=DistributedConfig(fsdp_size=RANKS)
    )
    arguments = TrainingArguments(
        output,
        max_steps=2,
        per_device_train_batch_size=1,
        use_cpu=True,
        save_steps=1,
        save_only_model=only_model,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    )
    rows = [{"input_ids": row, "labels": row} for row in TOKENS]
    return Trainer(model, arguments, train_dataset=rows)


def last_line(error: Exception) -> str:
    """The message's last line, from the last 120 characters of which the cause can be told."""
    return "..." + str(error).strip().splitlines()[-1].strip()[-120:]


def print_from_first(rank: int, text: str) -> None:
    """Once, not per rank."""
    if rank == 0:
        print(text, flush=True)


def main() -> None:
    """Write a random model, start the processes."""
    folder = tempfile.mkdtemp()
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (port, folder), nprocs=RANKS)


if __name__ == "__main__":
    main()
