#!/bin/bash
# Whether a plan ranks grids as they are: on four emulated hosts of two ranks each, the machine is
# probed, then every grid of eight ranks is measured, for each config of bench/plan_ranking, in
# three alternated rounds; both rankings side by side.
#
#   bench/plan_ranking.sh BUILD [FOLDER]    BUILD: the build folder, with AXONN_BENCH on; FOLDER:
#                                           where figures are kept (default: a temporary one); what
#                                           is there already is not measured again
#   RATE=1gbit ROUNDS=3 bench/plan_ranking.sh ...
#
# Needs what scripts/emulated-hosts needs. About a quarter of an hour. Fails if for a config the
# plan's first choice takes over 10 % longer than the fastest grid, or fewer than 4 of its best 5
# are among the 6 fastest or within 5 % of the sixth.
set -euo pipefail
build=$(realpath "${1:?which build folder}") figures=${2:-}
cd "$(dirname "$0")/.."
temporary=
[[ -n $figures ]] || temporary=$(mktemp -d)
figures=${figures:-$temporary}
trap 'scripts/emulated-hosts down; rm -rf "$temporary"' EXIT
mkdir -p "$figures"
figures=$(realpath "$figures")

hosts() { scripts/emulated-hosts "$@"; }

# on_hosts FILE COMMAND...: its output in FILE, unless that is there.
on_hosts() {
  local file=$1
  shift
  [[ ! -s $file ]] || return 0
  hosts up 4 "${RATE:-1gbit}"
  hosts cores  # each an even part, so that ranks compute as fast while the others wait as not
  hosts run 2 "$@" >"$file.part" || { hosts down; return 1; }
  hosts down
  mv "$file.part" "$file"
}

on_hosts "$figures/probe.txt" "$build/bin/axonn" probe --threads 1 --name "4 emulated hosts" \
  --out "$figures/machine.toml" --overwrite
cat "$figures/probe.txt"

readonly parts=4  # of a round: none takes a minute
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
  for ((part = 0; part < parts; part++)); do
    for config in bench/plan_ranking/*.toml; do
      on_hosts "$figures/$(basename "$config" .toml)-$round-$part" \
        "$build/bench/bench_plan_ranking" measure "$config" $part $parts
    done
  done
done

status=0
for config in bench/plan_ranking/*.toml; do
  name=$(basename "$config" .toml)
  echo
  echo "$name"
  "$build/bench/bench_plan_ranking" compare "$config" "$figures/machine.toml" \
    "$figures/$name"-[0-9]*-[0-9] || status=1
done
exit $status
