"""torchtitan's own parser reads what the adapter writes: every model, layout and feature.

    python scripts/torchtitan_options.py PYTHON

PYTHON has torchtitan 0.3. Nothing is trained, and no GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from scripts.adapter_cases import written
from sweep.trainers.torchtitan import MODELS

READ = """\
import json, sys
from torchtitan.config import ConfigManager
for line in sys.stdin:
    case, words = json.loads(line)
    config = ConfigManager().parse_args(words)
    print("read", case, config.model_spec.name, type(config.activation_checkpoint).__qualname__,
          config.parallelism.data_parallel_shard_degree, config.parallelism.context_parallel_degree,
          config.parallelism.expert_parallel_degree, config.checkpoint.initial_load_path)
"""


def main(python: str) -> int:
    """The exit code of its reader."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("sweep.trainers.torchtitan.find_spec"),
    ):
        cases = written(list(MODELS), Path(folder), "trainer=torchtitan", "scale=nano")
        commands = [
            (name, command.argv[command.argv.index("torchtitan.train") + 1 :])
            for name, command, _ in cases
        ]
    lines = "".join(json.dumps(argv) + "\n" for argv in commands)
    return subprocess.run([python, "-c", READ], input=lines, text=True).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", metavar="PYTHON")
    sys.exit(main(parser.parse_args().python))
