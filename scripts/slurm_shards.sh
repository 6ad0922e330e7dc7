#!/usr/bin/env bash
# A suite on whole nodes, each for one shard of it; on its node, a shard runs as many cases at once
# as the GPUs hold. What is said narrows the suite, as pytest's -k would:
#
#   sbatch --array=1-4 --partition=gpu scripts/slurm_shards.sh suite=nightly
#   sbatch --array=1-4 --partition=gpu scripts/slurm_shards.sh suite=nightly arch=qwen3_moe
#   sbatch --array=1-2 --partition=gpu scripts/slurm_shards.sh suite=nightly plan=true
#
# or, on one node, waiting for it, and without this script:
#
#   srun -N1 --exclusive --partition=gpu python -m sweep -m suite=nightly layout=cp4_ep4
#
# Name a server in MLFLOW_TRACKING_URI: SQLite does not stand several writers on a shared disk.
#SBATCH --job-name=sweep-shard
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --no-requeue
#SBATCH --output=slurm-%A_%a.log
set -uo pipefail
if [[ -z ${SLURM_ARRAY_TASK_ID:-} ]]; then
    echo "as in: sbatch --array=1-4 scripts/slurm_shards.sh suite=nightly" >&2
    exit 2
fi

# A step, and not this shell: scancel tells steps to stop before it kills them.
exec srun --ntasks=1 --cpu-bind=none "${PYTHON:-python3}" -m sweep -m \
    shard="$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" "$@"
