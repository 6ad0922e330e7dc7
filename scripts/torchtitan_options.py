"""torchtitan's own parser reads what the adapter writes: every model, layout and feature.

    python scripts/torchtitan_options.py PYTHON

PYTHON has torchtitan 0.3. Nothing is trained, and no GPU is needed.
"""

from __future__ import annotations

import argparse
import itertools
import json
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
from sweep.trainers.torchtitan import MODELS

LAYOUTS = ("single", "fsdp4_ep4", "cp4_ep4", "dp2_cp2_ep4")
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


def written(arch: str, layout: str, feature: str, folder: Path) -> list[tuple[str, list[str]]]:
    """The words of each launch of a case, or why there is none."""
    torchtitan = trainers.load("torchtitan")
    case = ["trainer=torchtitan", f"arch={arch}", "device=cuda", "scale=nano"]
    config = compose("config", [*case, f"layout={layout}", f"feature={feature}"])
    settings = settings_of(config, this_machine())
    with mock.patch("sweep.trainers.torchtitan.find_spec"):
        reason = torchtitan.unavailable(settings)
    name = f"{arch}-{layout}-{feature}"
    if reason:
        print(f"{name}: {reason}")
        return []
    found = []
    for number, launch in enumerate(torchtitan.launches(settings), start=1):
        directory = folder / name / f"{number}_{launch.name}"
        argv = torchtitan.command(settings, launch, directory, Path("/model")).argv
        found.append((f"{name}-{launch.name}", argv[argv.index("torchtitan.train") + 1 :]))
    return found


def main(python: str) -> int:
    """The exit code of its reader."""
    schema.register()
    features = sorted(path.stem for path in (conf_dir() / "feature").glob("*.yaml"))
    with (
        tempfile.TemporaryDirectory() as folder,
        initialize_config_dir(str(conf_dir()), version_base="1.3"),
    ):
        cases = itertools.product(MODELS, LAYOUTS, features)
        found = [one for case in cases for one in written(*case, Path(folder))]
    lines = "".join(json.dumps(one) + "\n" for one in found)
    return subprocess.run([python, "-c", READ], input=lines, text=True).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", metavar="PYTHON")
    sys.exit(main(parser.parse_args().python))
