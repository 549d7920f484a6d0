#!/bin/bash
# A run of any trainer on one node of a SLURM cluster; with --array=0-4 a run for each seed.
#
#   sbatch examples/clusters/slurm.sh es configs/stepping_stones.yaml runs/walk
#   sbatch --array=0-4 examples/clusters/slurm.sh es configs/stepping_stones.yaml runs/walk popsize=16
#
# A minute before its time is over, or when it is pre-empted, the job stops training, which loses
# at most the iteration under way, and queues itself again. The same script then continues: a resumed
# run gives the same result, bit for bit, for any number of cores.
#SBATCH --job-name=foveate
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -euo pipefail

trainer=$1 config=$2 run=$3
shift 3
seed=${SLURM_ARRAY_TASK_ID:-}
[ -z "$seed" ] || run=$run-s$seed

settings=("workers=$SLURM_CPUS_PER_TASK" "$@")
[ -z "$seed" ] || settings+=("seed=$seed")
if [ -f "$run/config.yaml" ]; then
  words=(--resume "$run")
else
  words=(--config "$config" --out "$run")
fi

export OMP_NUM_THREADS=1
python -m "training.$trainer" "${words[@]}" --set "${settings[@]}" &
training=$!

again() {
  trap '' TERM
  kill -TERM "$training" 2>/dev/null || true
  status=0
  wait "$training" || status=$?
  [ "$status" -eq 0 ] || scontrol requeue "$SLURM_JOB_ID"
  exit 0
}
trap again TERM
wait "$training"
