#!/bin/bash
# What overlap hides on four emulated hosts: for each config of bench/overlap, a step with overlap
# beside the longer of compute and communication, forward and backward, measured without.
#
#   bench/overlap.sh AXONN [RATE [CONFIG]]    AXONN: the program; RATE of every link (default
#                                             200mbit); one CONFIG, such as z, or all
#
# Needs what scripts/emulated-hosts needs, and jq. Prints a table, and each report before it.
set -euo pipefail
axonn=$(realpath "${1:?which program}") rate=${2:-200mbit}
cd "$(dirname "$0")/.."

figures=$(mktemp -d)
hosts() { scripts/emulated-hosts "$@"; }
hosts up 4 "$rate"
trap 'hosts down; rm -rf "$figures"' EXIT
hosts cores

only=${3:-*}
for config in bench/overlap/$only.toml; do
  name=$(basename "$config" .toml)
  echo "$name"
  hosts run 1 "$axonn" bench "$config" --overlap --json "$figures/$name.json" \
    --output.dir "$figures"
done

echo
echo "4 hosts, links of $rate; ms: Tf Tb compute and Cf Cb communication of forward and backward"
printf '%-8s %7s %7s %7s %7s %7s %7s %7s %6s %9s\n' \
  heavy Tf Cf Tb Cb optim. ideal step ratio progress
for config in bench/overlap/$only.toml; do
  name=$(basename "$config" .toml)
  # shellcheck disable=SC2046
  printf '%-8s %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f %7.0f %6.2f %8.1f%%\n' "$name" $(jq -r '
    .without_overlap as $off | [1e3 * ($off.forward.compute_s, $off.forward.comm_s,
    $off.backward.compute_s, $off.backward.comm_s, $off.optimizer.compute_s, .ideal_s,
    .with_overlap.step_s), .ratio, 100 * .with_overlap.progress_share] | map(tostring) |
    join(" ")' "$figures/$name.json")
done
