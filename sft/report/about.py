"""`about.json`: which code, libraries and data a launch runs, written before its first step."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sft import data, imported
from sft.data import Row

NAME = "about.json"
LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")
KEYS = ("input_ids", "labels", "position_ids")


def write(folder: Path, rows: Sequence[Row], packages: Sequence[str] = imported.PACKAGES) -> None:
    """Write it; `rows` are all rows of the data, `packages` the trainer's."""
    versions = {name: str(sys.modules[name].__version__)
                for name in LIBRARIES if name in sys.modules}  # fmt: skip
    about = {
        "code": imported.digest(packages),
        "data": data.digest_of(row[key] for row in rows for key in KEYS),
        "versions": versions,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps(about) + "\n", encoding="utf-8")
