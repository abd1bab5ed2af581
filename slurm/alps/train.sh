#!/bin/bash
# Trains on Alps (CSCS), 4 GH200 per node. Nobody has run it there. README.md says more.
#
#   slurm/chain.sh NAME COUNT -A ACCOUNT slurm/alps/train.sh CONFIG [OPTIONS of axonn train]
#
# ENVIRONMENT=FILE runs the program in the container of an environment definition file, such as
# slurm/alps/axonn.toml; otherwise in the uenv that UENV names.
#
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=72
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.out
set -uo pipefail
axonn=${AXONN:-axonn}
out=${OUT:-$SCRATCH/axonn/$SLURM_JOB_NAME}

# New files lie on 1, 4 or 32 storage targets, by their size. It holds for files made later, so the
# folder gets it before its first checkpoint. source: docs.cscs.ch, "Lustre tuning"
if [[ ! -d $out ]]; then
  mkdir -p "$out"
  lfs setstripe -E 4M -c 1 -E 64M -c 4 -E -1 -c 32 -S 4M "$out"
fi

# Without this, NCCL 2.27.3 and newer can silently corrupt data on GH200 with Slingshot. axonn sets
# it too. source: github.com/NVIDIA/nccl/issues/2001; docs.cscs.ch, "NCCL"
export NCCL_PROTO=^LL128
# The run ends if the plugin for Slingshot is not found. Without this, NCCL would use sockets. Not
# on one node, which needs no network. source: docs.cscs.ch, "NCCL"
if ((SLURM_JOB_NUM_NODES > 1)); then export NCCL_NET="AWS Libfabric"; fi
# Rings may change adapters between nodes; adapters read GPU memory of their own NUMA node.
# source: the same
export NCCL_CROSS_NIC=1 NCCL_NET_GDR_LEVEL=PHB
# libfabric: registered memory is tracked by the kernel, host memory is not registered with CUDA,
# queues are long, and messages are matched in software. source: the same
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=16384 FI_CXI_RX_MATCH_MODE=software
# MPI on GPU memory and NCCL can deadlock; some clusters of Alps have 1 by default. source: the same
export MPICH_GPU_SUPPORT_ENABLED=0

if [[ -n ${ENVIRONMENT:-} ]]; then
  place=(--mpi=pmix --environment="$ENVIRONMENT")  # source: docs.cscs.ch, "NCCL", containers
else
  place=(--uenv="${UENV:?set UENV, such as prgenv-gnu/25.11:v1, or ENVIRONMENT}" --view=default)
fi
# Since Slurm 22.05 srun no longer takes the cores of a rank from sbatch.
# source: slurm.schedmd.com/srun.html, --cpus-per-task
code=0
srun "${place[@]}" -c "$SLURM_CPUS_PER_TASK" --cpu-bind=cores "$axonn" train "$@" \
  --parallelism.device cuda --output.dir "$out" --checkpoint.resume auto || code=$?

# 0: the run is finished. 2: a usage error, which the next job would repeat. After all other ends
# the next job of the chain goes on, or this job itself, if it is alone and has saved (75).
if [[ ${AXONN_CHAIN:-} == "$SLURM_JOB_NAME" ]]; then
  case $code in
    0 | 2) scancel --user="$SLURM_JOB_USER" --name="$SLURM_JOB_NAME" --state=PENDING ;;
  esac
elif ((code == 75)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
