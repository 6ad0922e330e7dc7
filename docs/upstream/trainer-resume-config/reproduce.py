"""transformers' Trainer cannot resume deepseek_v4: it reads config.json as no model's.

    python reproduce.py

Trains a small random model for one step and resumes it for a second.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    DeepseekV4Config,
    DeepseekV4ForCausalLM,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
)

CONFIG = DeepseekV4Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    moe_intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    n_routed_experts=4,
    num_experts_per_tok=2,
    q_lora_rank=16,
    head_dim=16,
    pad_token_id=0,
    bos_token_id=0,
    eos_token_id=1,
)
TOKENS = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(0))
ROWS = [{"input_ids": row, "labels": row} for row in TOKENS]


def trainer(folder: Path, steps: int) -> Trainer:
    """A Trainer that saves after its last step."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=2,
        save_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    return Trainer(DeepseekV4ForCausalLM(CONFIG), arguments, train_dataset=ROWS)


def attempt(what: str, action: Callable[[], object]) -> None:
    """Print how it ends."""
    try:
        action()
        print(f"{what}: well")
    except ValueError as error:
        print(f"{what}: {type(error).__name__}: {str(error).splitlines()[-1].strip()}")


def main() -> None:
    """Train, read the configuration both ways, resume."""
    folder = Path(tempfile.mkdtemp())
    trainer(folder, 1).train()
    saved = folder / "checkpoint-1"
    attempt("AutoConfig.from_pretrained", lambda: AutoConfig.from_pretrained(saved))
    attempt(
        "PreTrainedConfig.from_json_file",
        lambda: PreTrainedConfig.from_json_file(str(saved / "config.json")),
    )
    attempt(
        "Trainer.train(resume_from_checkpoint)",
        lambda: trainer(folder, 2).train(resume_from_checkpoint=str(saved)),
    )


if __name__ == "__main__":
    main()
