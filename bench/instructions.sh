#!/bin/bash
# Compares the sets of instructions of one program on one machine: the tokens per second of
# training steps with each, in turn, so that all see the same machine:
#
#   bench/instructions.sh AXONN N CONFIG [KEYS...]
#
# AXONN is a program with several sets (-DAXONN_MARCH=dispatch; axonn info lists them). Kernels and
# oneDNN are limited to plain x86-64, AVX2 and AVX-512, as far as the processor has them. Prints a
# row for each set: the median of N runs, and its ratio to the first.
set -euo pipefail
axonn=${1:?program} runs=${2:?how often} config=${3:?configuration}
shift 3
sets=(SSE41)
grep -qw avx2 /proc/cpuinfo && sets+=(AVX2)
grep -qw avx512f /proc/cpuinfo && sets+=(AVX512_CORE)

# figure SET KEYS...: tokens/s of a benchmark with these instructions.
figure() {
  DNNL_MAX_CPU_ISA=$1 "$axonn" bench "$config" "${@:2}" 2>/dev/null | tr -d ',' |
    sed -nE 's/.*[^0-9.]([0-9.]+) tokens\/s.*/\1/p; s/.*tokens\/s +([0-9.]+).*/\1/p' | tail -n 1
}

declare -A figures
for ((i = 1; i <= runs; i++)); do
  for set in "${sets[@]}"; do figures[$set]+="$(figure "$set" "$@")"$'\n'; done
done
for set in "${sets[@]}"; do
  printf '%s %s\n' "$set" "$(printf %s "${figures[$set]}" | sort -n | paste -sd' ')"
done | awk '{ n = NF - 1; m = ($(1 + int((n + 1) / 2)) + $(2 + int(n / 2))) / 2
              if (NR == 1) first = m
              printf "%-12s median %8.1f tokens/s, %5.2f times the first  (", $1, m, m / first
              for (i = 2; i <= NF; i++) printf "%s%s", $i, i < NF ? ", " : ")\n" }'
