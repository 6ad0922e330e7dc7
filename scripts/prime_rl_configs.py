"""prime-rl's own configuration classes read what the adapter writes: every feature and layout.

    python scripts/prime_rl_configs.py PRIME_RL_CHECKOUT PYTHON

PYTHON (3.12) has what packages/prime-rl-configs of the checkout depends on:
pip install pydantic tomli tomli-w prime-pydantic-config renderers verifiers
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from scripts.adapter_cases import written

READ = """\
import sys
from prime_rl.configs.sft import SFTConfig
from prime_rl.utils.config import cli
for path in sys.argv[1:]:
    cli(SFTConfig, args=["@", path])
    print("read", path)
"""


def main(checkout: Path, python: str) -> int:
    """The exit code of its reader."""
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch("shutil.which", return_value="uv"):
            configs = written(["qwen3_moe"], Path(folder), "trainer=prime_rl")
            paths = [directory / "config.toml" for _, _, directory in configs]
        source = checkout / "packages/prime-rl-configs/src"
        return subprocess.run(
            [python, "-c", READ, *map(str, paths)], env={"PYTHONPATH": str(source)}
        ).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, metavar="PRIME_RL_CHECKOUT")
    parser.add_argument("python", metavar="PYTHON")
    asked = parser.parse_args()
    sys.exit(main(asked.checkout, asked.python))
