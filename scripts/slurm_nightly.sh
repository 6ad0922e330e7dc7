#!/usr/bin/env bash
# A suite as job arrays, driven from a job of its own, so that no login node has to stay up for it:
#
#   sbatch --partition=cpu scripts/slurm_nightly.sh suite=nightly device=cuda \
#       hydra.launcher.partition=gpu hydra.launcher.array_parallelism=16
#
# Submitted from cron, its exit code is the sweep's: 0, 1, 2, or 3. To submit and leave instead,
# call python -m sweep with detach=true, and python -m sweep.collect in the morning.
#SBATCH --job-name=sweep-driver
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --no-requeue
#SBATCH --time=12:00:00
#SBATCH --output=slurm-%j.log
set -uo pipefail

# What this job was given must not look like a request of the jobs that it submits.
for name in $(compgen -e SLURM_) $(compgen -e SBATCH_); do
    [[ $name == SLURM_CONF ]] || unset "$name"
done
exec "${PYTHON:-python}" -m sweep -m hydra/launcher=slurm "$@"
