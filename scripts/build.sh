#!/bin/bash
# build.sh PRESET [TARGET ...]: configures and builds into build/PRESET, with one job per processor,
# or fewer if memory is short. Prints CMake's lines about CUDA, HIP and optional libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
mkdir -p "build/$preset"
if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
  cat "build/$preset/configure.log" >&2
  exit 1
fi
grep -E '^-- (CUDA|HIP|MPI|ICU|SENTENCEPIECE|HTTP):' "build/$preset/configure.log" || true
jobs=$(nproc)
# The compiler needs up to 1.5 GB per unit.
memory=$(awk '/^MemAvailable/ {print int($2 / 1.5e6)}' /proc/meminfo)
((memory >= jobs)) || jobs=$((memory > 1 ? memory : 1))
cmake --build --preset "$preset" --parallel "$jobs" ${@:+--target "$@"}
