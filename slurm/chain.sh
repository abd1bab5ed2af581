#!/bin/bash
# chain.sh NAME COUNT [SBATCH-OPTIONS] SCRIPT CONFIG [OPTIONS of axonn train]
#
# Submits COUNT jobs that run one after the other, each from the last checkpoint of the one before.
# Of jobs with one name, Slurm runs one at a time (--dependency=singleton), so NAME must be the
# run's own. The job that finishes the run removes those that still wait. More jobs of the same NAME
# make a chain longer.
#
#   slurm/chain.sh llama 5 -A ACCOUNT -N 64 -t 12:00:00 slurm/frontier/train.sh llama.toml
set -euo pipefail
if (($# < 4)) || [[ ! $2 =~ ^[1-9][0-9]*$ ]]; then
  sed -n '2,9s/^# \?//p' "$0" >&2
  exit 2
fi
name=$1 count=$2
shift 2
export AXONN_CHAIN=$name  # the job scripts read it
for ((job = 0; job < count; job++)); do
  sbatch --job-name="$name" --dependency=singleton "$@"
done
