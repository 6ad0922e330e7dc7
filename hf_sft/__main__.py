"""transformers' Trainer on a checkpoint and documents, as a JSON file says.

torchrun --nproc-per-node 2 -m hf_sft config.json    # python -m hf_sft with one process

The sweep writes such a file into each launch's folder: sweep/trainers/hf_trainer.py has its keys.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="hf_sft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    path = parser.parse_args().config
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{path} is no readable JSON file: {error}")

    from hf_sft.train import train  # imports transformers, which --help has no need of

    train(config)
