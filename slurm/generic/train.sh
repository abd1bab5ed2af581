#!/bin/bash
# Trains on any cluster with Slurm. To edit: the lines of SBATCH, or the same options of sbatch.
#
#   sbatch slurm/generic/train.sh CONFIG [OPTIONS of axonn train]
#   slurm/chain.sh NAME COUNT slurm/generic/train.sh CONFIG [OPTIONS of axonn train]
#
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x.out
#
# USR1 goes to the ranks (with B: it would go to this script), 300 to 360 s before the time limit:
# they finish the step, save and end with 75. The time must suffice for that; docs/checkpoints.md
# estimates it.
set -uo pipefail
axonn=${AXONN:-axonn}   # the program, if it is not on PATH
mpi=${AXONN_MPI:-pmix}  # one of `srun --mpi=list` that the program's MPI library supports

# Open MPI started by srun does not bind its ranks; Slurm gives each rank cores of its own.
# source: slurm.schedmd.com/mpi_guide.html
# Since Slurm 22.05 srun no longer takes the cores of a rank (-c) from sbatch.
# source: slurm.schedmd.com/srun.html, --cpus-per-task
code=0
srun --mpi="$mpi" ${SLURM_CPUS_PER_TASK:+-c "$SLURM_CPUS_PER_TASK"} --cpu-bind=cores \
  "$axonn" train "$@" --checkpoint.resume auto || code=$?

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
