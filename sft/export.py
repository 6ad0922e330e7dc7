"""Write the model as a plain Hugging Face checkpoint, which any program loads."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from transformers import PreTrainedModel
from transformers.utils import logging

from sft.config import Config
from sft.ranks import Ranks


class Run(Protocol):
    """What is exported of a run; `sft.loop.Trainer` has it."""

    config: Config
    ranks: Ranks
    model: PreTrainedModel
    step: int


def folder(output_dir: str, step: int) -> Path:
    """Where the model as it is after a step is written."""
    return Path(output_dir) / "exports" / f"step_{step}"


def write(trainer: Run) -> Path:
    """Gather the model and write it from rank 0: transformers undoes what it did while loading."""
    place = folder(trainer.config.output_dir, trainer.step)
    logging.disable_progress_bar()
    trainer.model.save_pretrained(place)
    trainer.ranks.wait()
    return place
