#!/bin/bash
# fuzz.sh [SECONDS [TARGET...]]: feeds arbitrary bytes to the readers of files, each target (all by
# default; tests/fuzz/targets.h) for SECONDS, 60 by default. New inputs are kept in
# build/fuzz/corpus/TARGET. Inputs that crash, hang or take too much memory are reported and kept in
# build/fuzz/found, and the script exits with 1. Needs clang with libFuzzer.
set -uo pipefail
cd "$(dirname "$0")/.."

readonly seconds=${1:-60}
shift || true
cmake --preset fuzz && cmake --build --preset fuzz --target axonn_fuzz || exit
readonly fuzz=build/fuzz/bin/axonn_fuzz
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <("$fuzz" 2>&1 | sed -n 's/^  //p')

mkdir -p build/fuzz/found
status=0
[[ -d /dev/shm ]] && export TMPDIR=/dev/shm  # each input becomes a file
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  "$fuzz" "--target=$target" "--seeds=$corpus" || exit
  echo "== $target"
  # Inputs of 256 KiB hold whole vocabularies and strings that are longer than a limit.
  if ! "$fuzz" "--target=$target" "$corpus" "tests/fuzz/corpus/$target" \
    -max_total_time="$seconds" -max_len=262144 -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=256 -dict=tests/fuzz/words.dict -artifact_prefix="build/fuzz/found/$target-" \
    >"build/fuzz/$target.log" 2>&1; then
    status=1
    grep -v '^#[0-9]' "build/fuzz/$target.log" | tail -n 40
  fi
  grep '^Done' "build/fuzz/$target.log"
done
exit "$status"
