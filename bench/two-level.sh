#!/bin/bash
# Collectives in two levels beside flat ones, on four emulated hosts with two ranks each.
#
#   bench/two-level.sh AXONN BENCH [RATE [RUNS]]   AXONN: the program; BENCH: the program
#                                                  bench_comm_collectives; RATE of every link
#                                                  (default 200mbit); RUNS of each training
#
# Prints what `axonn probe` measures, the times of collectives by these rates, and the median step
# of two trainings, whose ranks all lie on the z axis or on the data axis. flat, two-level and auto
# run in turn. Fails unless all losses and gradient norms are the same to the last digit.
#
# Needs what scripts/emulated-hosts needs, and jq.
set -euo pipefail
axonn=$(realpath "${1:?which program}") bench=$(realpath "${2:?which benchmark}")
rate=${3:-200mbit} runs=${4:-3}
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
hosts() { scripts/emulated-hosts "$@"; }
hosts up 4 "$rate"
trap 'hosts down; rm -rf "$folder"' EXIT

hosts run 2 "$axonn" probe --quick --out "$folder/here.toml" >/dev/null
figure() { sed -nE "s/^$1 = ([0-9.e+-]+).*/\1/p" "$folder/here.toml"; }
rates=$(awk -v b="$(figure node_bytes_per_s)" -v l="$(figure node_latency_s)" \
  -v i="$(figure device_latency_s)" 'BEGIN {printf "%.0f %.0f %.0f", 8e-6 * b, 1e6 * l, 1e6 * i}')
echo "links of $rate; probe: Mbit/s of a host, us of a hop between hosts, us inside: $rates"
# shellcheck disable=SC2086
hosts run 2 "$bench" methods 16384 $rates

train() {  # AXIS KIND: prints the step times of one training, and keeps its losses
  hosts run 2 "$axonn" train "bench/overlap/$1.toml" "--parallelism.$1" 8 \
    --training.global_batch "$([[ $1 == z ]] && echo 32 || echo 48)" --training.steps 8 \
    --parallelism.collectives "$2" --parallelism.machine "$folder/here.toml" \
    --output.dir "$folder/run" --output.overwrite true >"$folder/log" 2>&1 || cat "$folder/log"
  jq -r 'select(.step > 2) | .step_ms' "$folder/run/metrics.jsonl" >>"$folder/$1-$2"
  jq -c '[.step, .loss, .grad_norm]' "$folder/run/metrics.jsonl" >"$folder/losses-$1-$2"
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

for axis in z data; do
  for ((run = 1; run <= runs; run++)); do
    for kind in flat two-level auto; do
      train $axis $kind
      cmp "$folder/losses-$axis-flat" "$folder/losses-$axis-$kind"
    done
  done
  echo "$axis: ms of a step: flat $(median "$folder/$axis-flat")," \
    "two-level $(median "$folder/$axis-two-level"), auto $(median "$folder/$axis-auto");" \
    "the same losses: $(tail -n 1 "$folder/losses-$axis-flat")"
done
