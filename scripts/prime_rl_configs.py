"""prime-rl's own configuration classes read what the adapter writes: every feature and layout.

    python scripts/prime_rl_configs.py PRIME_RL_CHECKOUT PYTHON

PYTHON (3.12) has what packages/prime-rl-configs of the checkout depends on:
pip install pydantic tomli tomli-w prime-pydantic-config renderers verifiers
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from hydra import compose, initialize_config_dir

from sweep import schema, trainers
from sweep.case import settings_of
from sweep.files import conf_dir
from sweep.machine import this_machine

LAYOUTS = ("single", "fsdp4_ep4", "cp4_ep4", "dp2_cp2_ep4")
READ = """\
import sys
from prime_rl.configs.sft import SFTConfig
from prime_rl.utils.config import cli
for path in sys.argv[1:]:
    cli(SFTConfig, args=["@", path])
    print("read", path)
"""


def written(folder: Path) -> list[Path]:
    """The TOML of every launch of every case that is available, with a GPU."""
    schema.register()
    features = sorted(path.stem for path in (conf_dir() / "feature").glob("*.yaml"))
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for feature, layout in itertools.product(features, LAYOUTS):
            write(feature, layout, folder)
    return sorted(folder.rglob("config.toml"))


def write(feature: str, layout: str, folder: Path) -> None:
    """The TOML of each launch, or why there is none."""
    prime_rl = trainers.load("prime_rl")
    case = ["trainer=prime_rl", "arch=qwen3_moe", "device=cuda"]
    config = compose("config", [*case, f"layout={layout}", f"feature={feature}"])
    settings = settings_of(config, this_machine())
    with mock.patch("shutil.which", return_value="uv"):
        reason = prime_rl.unavailable(settings)
    print(f"{feature}-{layout}: {reason or 'written'}")
    if reason:
        return
    for number, launch in enumerate(prime_rl.launches(settings), start=1):
        directory = folder / f"{feature}-{layout}" / f"{number}_{launch.name}"
        directory.mkdir(parents=True)
        prime_rl.command(settings, launch, directory, Path("/model"))


def main(checkout: Path, python: str) -> int:
    """The exit code of its reader."""
    with tempfile.TemporaryDirectory() as folder:
        paths = written(Path(folder))
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
