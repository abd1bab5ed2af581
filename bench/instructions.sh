#!/bin/bash
# Compares the sets of instructions of one program on one machine, by bench/alternate.sh:
#
#   bench/instructions.sh AXONN N CONFIG [KEYS...]
#
# AXONN is a program with several sets (-DAXONN_MARCH=dispatch; axonn info lists them). Kernels and
# oneDNN are limited to the newest that the processor has and to each older one: AVX-512, AVX2 and
# plain x86-64, in this order.
set -euo pipefail
axonn=${1:?program} runs=${2:?how often} config=${3:?configuration}
sets=()
grep -qw avx512f /proc/cpuinfo && sets+=(AVX512_CORE)
grep -qw avx2 /proc/cpuinfo && sets+=(AVX2)
sets+=(SSE41)
commands=()
for set in "${sets[@]}"; do
  commands+=("DNNL_MAX_CPU_ISA=$set $(printf '%q ' "$axonn" bench "$config" "${@:4}")")
done
echo "sets: ${sets[*]}"
"$(dirname "$0")/alternate.sh" "$runs" "${commands[@]}"
