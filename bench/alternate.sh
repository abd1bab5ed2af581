#!/bin/bash
# Runs two commands in turn, N times each, and compares the tokens per second that they print, so
# that both see the same machine:
#
#   bench/alternate.sh N "COMMAND A" "COMMAND B"
#
# A figure is the number before "tokens/s" or after "tokens/s" on a line of the output. Prints every
# run, both medians and their ratio A / B.
set -euo pipefail
runs=${1:?how often} a=${2:?command A} b=${3:?command B}

# figure COMMAND: what it prints as tokens per second.
figure() {
  bash -c "$1" 2>/dev/null | tr -d ',' |
    sed -nE 's/.*[^0-9.]([0-9.]+) tokens\/s.*/\1/p; s/.*tokens\/s +([0-9.]+).*/\1/p' | tail -n 1
}
median() {
  sort -n | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2}'
}

of_a="" of_b=""
for ((i = 1; i <= runs; i++)); do
  x=$(figure "$a")
  y=$(figure "$b")
  echo "run $i: A $x, B $y tokens/s"
  of_a+="$x"$'\n' of_b+="$y"$'\n'
done
ma=$(printf %s "$of_a" | median)
mb=$(printf %s "$of_b" | median)
awk -v a="$ma" -v b="$mb" \
  'BEGIN {printf "median: A %.0f, B %.0f tokens/s, A / B = %.2f\n", a, b, a / b}'
