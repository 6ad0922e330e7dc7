#!/usr/bin/env bash
# A night on this machine's GPUs, and what it left in one file to take home:
#
#   scripts/gpu_night.sh night.tar.gz -m suite=two_gpus launch.cases_per_gpu=4
#
# Run it twice for a night with cold caches and one with warm caches. At home, where
# MLFLOW_TRACKING_URI may name a server:
#
#   tar xzf night.tar.gz && python -m sweep.sync outputs=outputs
#
# The exit code is the sweep's. NVLink multicast stays off: on shared hosts it can take GPUs down.
set -uo pipefail
[[ $# -ge 2 ]] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
archive=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
outputs=${GPU_NIGHT_OUTPUTS:-outputs}

export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} # the package need not be installed
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-4} # several cases at once

start=$(date +%s)
"${PYTHON:-python3}" -m sweep "$@" outputs="$outputs"
code=$?
echo "the sweep took $(($(date +%s) - start)) s and ended with $code"
tar -czf "$archive" --exclude=checkpoints --exclude=exports --exclude=.submitit --exclude='mlflow.db*' --exclude=artifacts \
    -C "$(dirname "$outputs")" "$(basename "$outputs")" || exit 3
exit "$code"
