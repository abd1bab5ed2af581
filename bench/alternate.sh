#!/bin/bash
# Runs commands in turn, N times each, and compares the tokens per second that they print, so that
# all see the same machine:
#
#   bench/alternate.sh N "COMMAND A" "COMMAND B" ["COMMAND C" ...]
#
# A figure is the number before "tokens/s" or after "tokens/s" on a line of the output. Prints every
# run, the medians, and the ratio of the first to each of the others.
set -euo pipefail
runs=${1:?how often}
: "${2:?command A}" "${3:?command B}"
commands=("${@:2}")
names=({A..Z})

# figure COMMAND: what it prints as tokens per second.
figure() {
  bash -c "$1" 2>/dev/null | tr -d ',' |
    sed -nE 's/.*[^0-9.]([0-9.]+) tokens\/s.*/\1/p; s/.*tokens\/s +([0-9.]+).*/\1/p' | tail -n 1
}
median() {
  sort -n | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'
}

figures=()
for ((i = 1; i <= runs; i++)); do
  line=""
  for ((k = 0; k < ${#commands[@]}; k++)); do
    one=$(figure "${commands[k]}")
    figures[k]+="$one"$'\n'
    line+="${line:+, }${names[k]} $one"
  done
  echo "run $i: $line tokens/s"
done
for ((k = 0; k < ${#commands[@]}; k++)); do
  echo "${names[k]} $(printf %s "${figures[k]}" | median)"
done | awk '
  {name[NR] = $1; m[NR] = $2}
  END {
    for (i = 1; i <= NR; i++) printf "%s%s %.0f", i == 1 ? "median: " : ", ", name[i], m[i]
    printf " tokens/s"
    for (i = 2; i <= NR; i++) printf ", %s / %s = %.2f", name[1], name[i], m[1] / m[i]
    print ""
  }'
