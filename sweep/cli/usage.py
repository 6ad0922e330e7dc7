"""What `python -m sweep --help` says. Hydra's own help cannot be had without naming an arch."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from sweep.files import ConfDirs

GROUPS = ("suite", "arch", "layout", "feature", "trainer", "scale", "hydra/launcher")

_TEXT = """\
Train a tiny model of every architecture, in every layout, with every feature; say what broke.
Linux only: no macOS, and Windows in WSL.

  python -m sweep arch=llama layout=cp4_ep4
      one case, in the foreground, its log streamed
  python -m sweep -m arch=qwen3_moe,gpt_oss layout=cp4_ep4
      each combination, as jobs, with a live table
  python -m sweep -m 'arch=glob(*)' layout=single,fsdp4_ep1 steps=8 launch.timeout_seconds=300
      any setting can be changed, and with -m have several values; glob(qwen*) takes all that
      match, and a layout may be any degrees of parallelism, as case ids have them
  python -m sweep -m suite=nightly plan=true
      a whole suite: list its cases, launches and estimates; without plan=true, run it
  python -m sweep -m suite=nightly arch=qwen3_moe shard=1/4
      choices narrow a suite, cases=[ID,...] to single cases; shard=I/N is the part of one of N
      runners
  python -m sweep -m suite=nightly hydra/launcher=slurm device=cuda hydra.launcher.partition=gpu
      as Slurm jobs; detach=true submits and returns, and python -m sweep.collect judges later
  python -m sweep -m suite=smoke locate=true
      look into each failure at the end: the step, stage and module where it parts
  python -m sweep -m resume_sweep=latest
      go on with an interrupted sweep (or one by its id); rerun=failed runs its failures again

Choices:
{choices}

Settings with their defaults:  python -m sweep arch=llama layout=single --cfg job
Completion of all this (bash): eval "$(trainer-sweep -sc install=bash)", for trainer-sweep
Choices of your own:           --config-dir FOLDER, with layout/, feature/, trainer/ or suite/ as in
  {conf}
  (an architecture takes code too: docs/extending.md); with --help as well, they are listed above

Results: outputs/<sweep id>/ with summary.md, junit.xml and a folder a case; and MLflow runs, in
outputs/mlflow.db or where MLFLOW_TRACKING_URI points. More commands on them, each with --help:
sweep.history (cases over the nights), sweep.merge (shards), sweep.prune (logs of old nights),
sweep.judge (again, from MLflow), sweep.compare (two sweeps), sweep.baseline (pin one),
sweep.locate (where a failed case parts from its reference), sweep.calibrate (thresholds),
sweep.sync (record later), sweep.collect (of a detached sweep), sweep.bisect (the first bad commit
or release), sweep.versus (two commits).
Exit code: 0 all passed, 1 a case failed, 2 the request is wrong, 3 the sweep itself failed
(nothing could be started or recorded), 130 interrupted."""


def usage(conf: ConfDirs) -> str:
    """The help text, with the choices of `conf/` and of --config-dir."""
    choices = "\n".join(_choices(group, conf.choices_of(group)) for group in GROUPS)
    return _TEXT.format(choices=choices, conf=conf.shipped)


def _choices(group: str, names: Sequence[str]) -> str:
    return textwrap.fill(
        f"  {group + '=':<16}{', '.join(names)}", width=98, subsequent_indent=" " * 18
    )
