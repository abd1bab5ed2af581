#!/bin/bash
# build.sh PRESET [TARGET ...]: configures if need be and builds, on all processors that there is
# memory for. Output goes to build/PRESET. Shows what configuring found of CUDA and HIP.
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
jobs=$(nproc)
# A unit takes up to 1.5 GB.
memory=$(awk '/^MemAvailable/ {print int($2 / 1.5e6)}' /proc/meminfo)
((memory >= jobs)) || jobs=$((memory > 1 ? memory : 1))
cmake --build --preset "$preset" --parallel "$jobs" ${@:+--target "$@"}
