#!/bin/bash
# Trains on Perlmutter (NERSC), 4 A100 per node. Nobody has run it there. README.md says more.
#
#   slurm/chain.sh NAME COUNT -A ACCOUNT slurm/perlmutter/train.sh CONFIG [OPTIONS of axonn train]
#
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.out
set -uo pipefail
axonn=${AXONN:-axonn}
# Scratch keeps a file on one storage target. That suits checkpoints, in which each rank has a file.
# Files that were not used for eight weeks are removed.
# source: docs.nersc.gov, "Perlmutter Scratch"
out=${OUT:-$PSCRATCH/axonn/$SLURM_JOB_NAME}

# cuDNN computes attention. Other libraries of build.sh are found by their paths.
module load PrgEnv-gnu cudatoolkit nccl cudnn

# GPUs 3, 2, 1, 0 are next to adapters cxi0, 1, 2, 3, and to the cores of a node's ranks 0 to 3.
# source: docs.nersc.gov, "Process and Thread Affinity"
export CUDA_VISIBLE_DEVICES=3,2,1,0
# The run ends if the plugin for Slingshot is not found. Without this, NCCL would use sockets.
# source: docs.cscs.ch, "NCCL"; the name is the plugin's own (aws-ofi-nccl). Not on one node, which
# needs no network.
if ((SLURM_JOB_NUM_NODES > 1)); then export NCCL_NET="AWS Libfabric"; fi
# NCCL's own connections use Slingshot too. source: the scripts of AxoNN's authors (axonn on GitHub)
export NCCL_SOCKET_IFNAME=hsn
# Collectives of MPI on GPU memory and those of NCCL can deadlock. axonn gives MPI host memory only.
# source: NCCL's guide, "Inter-GPU Communication with CUDA-Aware MPI"
export MPICH_GPU_SUPPORT_ENABLED=0
# libfabric: registered memory is tracked by the kernel, host memory is not registered with CUDA,
# queues are long, and messages beyond the adapter's lists are matched in software.
# source: HPE, shs-ccl-docs on GitHub
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048 FI_CXI_RX_MATCH_MODE=hybrid
# Rings may change adapters between nodes; adapters read GPU memory of their own NUMA node.
# source: the same
export NCCL_CROSS_NIC=1 NCCL_NET_GDR_LEVEL=PHB

# Since Slurm 22.05 srun no longer takes the cores of a rank from sbatch.
# source: slurm.schedmd.com/srun.html, --cpus-per-task
code=0
srun -c "$SLURM_CPUS_PER_TASK" --cpu-bind=cores "$axonn" train "$@" \
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
