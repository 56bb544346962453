#!/bin/bash
# Bulk prediction on several machines: a Ray cluster inside the allocation.
#   sbatch --nodes=4 deploy/slurm/predict.sh MODEL TEXTS TAGS
# A repeated job continues with the finished shards. Paths are on a file system that all nodes share.
#SBATCH --job-name=glocal-predict
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
set -euo pipefail

model=$1 texts=$2 tags=$3
port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
cpus=$SLURM_CPUS_PER_TASK

srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --port="$port" --num-cpus="$cpus" --block &
sleep 10
if ((SLURM_JOB_NUM_NODES > 1)); then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) \
    --exclude="$head" ray start --address="$head:$port" --num-cpus="$cpus" --block &
fi

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
  glocal predict "$model" "$texts" --output "$tags" --engine ray --address "$head:$port"
