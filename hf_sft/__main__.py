"""`torchrun --nproc-per-node N -m hf_sft CONFIG.json`, or `python -m hf_sft` with one process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hf_sft.train import train

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m hf_sft CONFIG.json")
    train(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
