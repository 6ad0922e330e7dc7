"""python -m sweep_taps [-m MODULE | SCRIPT] [ARGUMENT...]: run a trainer with its batches shown.

For trainers built on transformers' `Trainer` (TRL's among them), which need not be changed: each
call of `Trainer.training_step` shows its rows. Any other trainer calls `sweep_taps.batch` itself.
Without the environment variable SWEEP_TAPS the trainer runs as it would by itself.

    torchrun --nproc-per-node 2 -m sweep_taps -m trl.scripts.sft --config sft.yaml
"""

from __future__ import annotations

import functools
import runpy
import sys
from pathlib import Path
from typing import Any

import torch

import sweep_taps


def show(trainer: type[Any]) -> None:
    """Have a class with `Trainer`'s `training_step` show what it trains on."""
    train = trainer.training_step

    @functools.wraps(train)
    def training_step(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        tokens, mask = inputs["input_ids"], inputs.get("attention_mask")
        positions = inputs.get("position_ids")
        if positions is None:  # each row is a document
            positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        sweep_taps.batch(
            self.state.global_step + 1,
            tokens,
            inputs["labels"],
            positions,
            labels_of="token",
            padding=None if mask is None or mask.ndim != 2 else mask == 0,
        )
        return train(self, model, inputs, *args, **kwargs)

    trainer.training_step = training_step


def main(words: list[str]) -> None:
    """Run the module or script named by the words, with the words after it as its arguments."""
    is_module = words[:1] == ["-m"]
    words = words[1:] if is_module else words
    if not words or words[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        sys.exit(0 if words else 2)
    if sweep_taps.is_on():
        from transformers import Trainer

        show(Trainer)
    sys.argv = words
    if is_module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(words[0]).parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
