"""transformers' Trainer resumes a mixture of experts with the experts that it began with.

    python reproduce.py [CHECKPOINT ...]

Trains a small random Qwen3-MoE for two steps, saving after each; loads the first as a resume does,
and compares each parameter with the checkpoint; then resumes.

With checkpoints of other models, tells how many of a model's tensors a resume from such a one
leaves as they were: those that have another name, or are in parts, in the file.
"""

from __future__ import annotations

import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Trainer,
    TrainingArguments,
)

CONFIG = Qwen3MoeConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    moe_intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
)
TOKENS = torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(0))
ROWS = [{"input_ids": row, "labels": row} for row in TOKENS]


def trainer(folder: Path) -> Trainer:
    """A Trainer of the same initial model, whatever was trained before."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(folder),
        max_steps=2,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        save_strategy="steps",
        save_steps=1,
        logging_steps=1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    return Trainer(Qwen3MoeForCausalLM(CONFIG), arguments, train_dataset=ROWS)


def main() -> None:
    """Train, resume, compare."""
    folder = Path(tempfile.mkdtemp())
    trainer(folder).train()
    checkpoint = folder / "checkpoint-1"
    saved = dict(Qwen3MoeForCausalLM.from_pretrained(checkpoint).named_parameters())
    resumed = trainer(folder)
    initial = {name: p.detach().clone() for name, p in resumed.model.named_parameters()}
    resumed._load_from_checkpoint(str(checkpoint))  # what train(resume_from_checkpoint=...) calls
    for name, parameter in resumed.model.named_parameters():
        if torch.equal(parameter, saved[name]):
            continue
        before = "as before training" if torch.equal(parameter, initial[name]) else "something else"
        print(f"not as saved, but {before}: {name}")
    print("\nresumed from step 1, which reports success:")
    resumed.train(resume_from_checkpoint=str(checkpoint))


def left_out(checkpoint: Path) -> None:
    """Compare the names in the file with the model's own; weights that are tied have one name."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint))
    saved: set[str] = set()
    for path in checkpoint.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            saved |= set(file.keys())
    names = set(model.state_dict()) - set(model._tied_weights_keys or ())
    print(f"{model.config.model_type}: {len(names - saved)} of {len(names)} tensors")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    for name in sys.argv[1:]:
        left_out(Path(name))
