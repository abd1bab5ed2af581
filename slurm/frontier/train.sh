#!/bin/bash
# Trains on Frontier (OLCF), 8 GCDs (halves of MI250X) per node. Nobody has run it there. README.md
# says more.
#
#   slurm/chain.sh NAME COUNT -A ACCOUNT slurm/frontier/train.sh CONFIG [OPTIONS of axonn train]
#
# Jobs of up to 91 nodes may run 2 h, up to 183 nodes 6 h, larger ones 12 h.
# source: docs.olcf.ornl.gov, "Frontier User Guide", "Job Priority by Node Count"
#
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --constraint=nvme
#SBATCH --time=02:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.out
set -uo pipefail
axonn=${AXONN:-axonn}
# OLCF asks users not to stripe: Orion cuts files by their size. source: docs.olcf.ornl.gov, "Orion"
out=${OUT:?set OUT to a folder on Orion, such as /lustre/orion/PROJECT/scratch/USER/RUN}

module load PrgEnv-gnu cpe rocm craype-accel-amd-gfx90a
# The plugin through which RCCL uses Slingshot, a module since July 2026; building aws-ofi-rccl is
# deprecated. source: docs.olcf.ornl.gov, "Frontier User Guide"
module load rccl-net-plugin

# The program and its libraries are read from each node's NVMe, not by thousands of ranks from
# Orion; so are the files in STAGE, such as token files, which the config then names below /mnt/bb.
# source: the same, "sbcast"
nvme=/mnt/bb/$USER
sbcast --send-libs --exclude=NONE -pf "$(command -v "$axonn")" "$nvme/axonn" || exit 1
export LD_LIBRARY_PATH=$nvme/axonn_libs:${LD_LIBRARY_PATH:-}
for file in ${STAGE:-}; do sbcast -pf "$file" "$nvme/$(basename "$file")" || exit 1; done

if ((SLURM_JOB_NUM_NODES > 1)); then
  # The run ends if the plugin is not found. Without this, RCCL would use sockets.
  # source: docs.cscs.ch, "NCCL"; HPE, shs-ccl-docs on GitHub
  export NCCL_NET="AWS Libfabric"
else
  export NCCL_NET=Socket  # the plugin fails on one node. source: docs.olcf.ornl.gov
fi
# One interface for RCCL's own connections: with several, starts may hang. source: the same
export NCCL_SOCKET_IFNAME=hsn0
# Rings may change adapters between nodes; adapters read GPU memory of their own NUMA node.
# source: HPE, shs-ccl-docs on GitHub
export NCCL_CROSS_NIC=1 NCCL_NET_GDR_LEVEL=PHB
# libfabric: registered memory is tracked by the kernel, host memory is not registered with HIP,
# queues are long, and messages beyond the adapter's lists are matched in software.
# source: the same
export FI_MR_CACHE_MONITOR=userfaultfd FI_CXI_DISABLE_HOST_REGISTER=1
export FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_DEFAULT_TX_SIZE=2048 FI_CXI_RX_MATCH_MODE=hybrid
# Memory of GPUs that adapters access is fine-grained. source: the same
export HSA_FORCE_FINE_GRAIN_PCIE=1
# Collectives of MPI on GPU memory and those of RCCL can deadlock. axonn gives MPI host memory only.
# source: NCCL's guide, "Inter-GPU Communication with CUDA-Aware MPI"
export MPICH_GPU_SUPPORT_ENABLED=0

# Slurm keeps 8 of a node's 64 cores for the system: seven for each rank, and the GCD next to them
# (cores 0 to 7 are next to GCD 4). source: docs.olcf.ornl.gov, "Frontier User Guide"
# Since Slurm 22.05 srun no longer takes the cores of a rank from sbatch.
# source: slurm.schedmd.com/srun.html, --cpus-per-task
code=0
srun -c "$SLURM_CPUS_PER_TASK" --gpus-per-task=1 --gpu-bind=closest \
  "$nvme/axonn" train "$@" --parallelism.device hip --output.dir "$out" \
  --checkpoint.resume auto || code=$?

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
