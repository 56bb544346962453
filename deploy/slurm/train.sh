#!/bin/bash
# Training on several GPUs and machines with torchrun.
#   sbatch --nodes=2 deploy/slurm/train.sh TRAIN DEV OUT [options of glocal train]
# Documents are divided among the processes; with --shard-labels it is the labels, with
# --shard-encoder the encoder's weights too. A job that was requeued continues from the last
# checkpoint. Paths are on a file system that all nodes share.
#SBATCH --job-name=glocal-train
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=48:00:00
#SBATCH --requeue
set -euo pipefail

train=$1 dev=$2 out=$3
shift 3
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resume=()
if [[ -d "$out.run" ]]; then
  resume=(--resume)
fi

srun torchrun \
  --nnodes="$SLURM_JOB_NUM_NODES" \
  --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
  --rdzv-id="$SLURM_JOB_ID" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$head:29500" \
  -m glocal train "$train" --dev "$dev" --out "$out" "${resume[@]}" "$@"
