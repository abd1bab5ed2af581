#!/bin/bash
# build.sh PRESET [TARGET ...]: configures if need be and builds, on all processors. Output goes to
# build/PRESET. Shows what configuring found of CUDA and HIP.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
# With paths relative to the build's folder, presets share what they compile alike.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
mkdir -p "build/$preset"
if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
  cat "build/$preset/configure.log" >&2
  exit 1
fi
grep -E '^-- (CUDA|HIP):' "build/$preset/configure.log" || true
cmake --build --preset "$preset" --parallel "$(nproc)" ${@:+--target "$@"}
