#!/usr/bin/env bash
# A suite on whole nodes, each for one shard of it; on its node, a shard runs as many cases at once
# as the GPUs hold. What is said narrows the suite, as pytest's -k would:
#
#   sbatch --array=1-4 --partition=gpu scripts/slurm_shards.sh suite=nightly
#   sbatch --array=1-4 --partition=gpu scripts/slurm_shards.sh suite=nightly arch=qwen3_moe
#   sbatch --array=1-2 --partition=gpu scripts/slurm_shards.sh suite=nightly plan=true
#
# or, on one node and waiting for it, without this script:
#
#   srun -N1 --exclusive --partition=gpu python -m sweep -m suite=nightly layout=cp4_ep4
#
# Shards share the output folder; each has a sweep id, and a reading of MLflow by the tag `sweep_id`.
# Name a server in MLFLOW_TRACKING_URI: SQLite does not stand several writers on a network's disk.
#SBATCH --job-name=sweep-shard
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --ntasks=1
#SBATCH --no-requeue
#SBATCH --output=slurm-%A_%a.log
set -uo pipefail
[[ -n ${SLURM_ARRAY_TASK_ID:-} ]] || { echo "as in: sbatch --array=1-4 $0 suite=nightly" >&2; exit 2; }

# Not srun: the job holds the whole node, and scancel's SIGTERM shall reach the sweep itself.
exec "${PYTHON:-python}" -m sweep -m shard="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" "$@"
