#!/usr/bin/env bash
# A suite as job arrays, driven from a small job of its own, so that no login node has to stay up:
#
#   sbatch --partition=cpu scripts/slurm_nightly.sh suite=nightly device=cuda \
#       hydra.launcher.partition=gpu hydra.launcher.array_parallelism=16
#
# The job's exit code is the sweep's: 0, 1, 2 or 3. To submit and leave instead, call python -m sweep
# with detach=true, and python -m sweep.collect in the morning.
#SBATCH --job-name=sweep-driver
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --no-requeue
#SBATCH --time=12:00:00
#SBATCH --output=slurm-%j.log
set -uo pipefail
exec srun --ntasks=1 "${PYTHON:-python3}" -m sweep -m hydra/launcher=slurm "$@"
