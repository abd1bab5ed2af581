#!/bin/bash
# build.sh PRESET [TARGET ...]: configures if need be and builds. Output goes to build/PRESET.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
mkdir -p "build/$preset"
if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
  cat "build/$preset/configure.log" >&2
  exit 1
fi
cmake --build --preset "$preset" ${@:+--target "$@"}
