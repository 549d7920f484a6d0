#!/bin/bash
# One run of evolution strategies on several nodes of a SLURM cluster, by Ray.
#
#   sbatch --nodes=4 examples/clusters/slurm_ray.sh configs/stepping_stones.yaml runs/wide popsize=128
#
# Ray asks for the token in ~/.ray/auth_token, which all nodes see in the home directory. The rest is
# as in slurm.sh: the job queues itself again, and continues with as many nodes as it then gets.
#SBATCH --job-name=foveate-ray
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -euo pipefail

config=$1 run=$2
shift 2
export OMP_NUM_THREADS=1 RAY_AUTH_MODE=token
[ -f ~/.ray/auth_token ] || ray get-auth-token --generate >/dev/null

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) # where this script runs
address=$head:$((20000 + SLURM_JOB_ID % 10000))
nodes=$SLURM_JOB_NUM_NODES cores=$SLURM_CPUS_PER_TASK

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --port="${address#*:}" --num-cpus="$cores" --block &
until ray status --address="$address" >/dev/null 2>&1; do sleep 2; done
if [ "$nodes" -gt 1 ]; then
  srun --overlap --nodes=$((nodes - 1)) --ntasks=$((nodes - 1)) --exclude="$head" \
    ray start --address="$address" --num-cpus="$cores" --block &
fi

settings=("ray_address=$address" "workers=$((nodes * cores))" "$@")
if [ -f "$run/config.yaml" ]; then
  words=(--resume "$run")
else
  words=(--config "$config" --out "$run")
fi
python -m training.es "${words[@]}" --set "${settings[@]}" &
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
