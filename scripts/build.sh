#!/bin/bash
# build.sh PRESET [TARGET ...]: configures if need be and builds, on all processors. Output goes to
# build/PRESET. Shows what configuring found of CUDA and HIP.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
mkdir -p "build/$preset"
if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
  cat "build/$preset/configure.log" >&2
  exit 1
fi
grep -E '^-- (CUDA|HIP):' "build/$preset/configure.log" || true
cmake --build --preset "$preset" --parallel "$(nproc)" ${@:+--target "$@"}
