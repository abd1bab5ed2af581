#!/bin/bash
# Usage: scripts/perturb-tests.sh [RUNS] [FILTER...]
#
# Runs every suite of tests that trains RUNS times (default 100), each with a different rounding
# of the matrix products. These are the suites of the sources that include a header of the list
# below. Prints failures / runs of each test and exits with 1 if one failed. With FILTERs it runs
# only the programs and suites whose names contain one of them.
#
# Run i uses the seed i of tests/support/perturb_products.cpp. oneDNN's products use AVX2, AVX-512
# and the machine's newest instructions in turn. The output of failed runs is kept in
# build/dev/perturbed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# What trains in tests: runs of the library, steps of tiny models, and runs of the program.
readonly trains='#include "tests/(support/(runs|tiny_model)|app/cli/runs)\.h"'

readonly runs=${1:-100}
shift
readonly wanted=("${@:-}")
readonly build=build/dev
readonly library=$PWD/$build/tests/libperturb_products.so
readonly logs=$build/perturbed

# program_of SOURCE: the test program that the CMakeLists.txt beside the source makes of it.
program_of() {
  awk -v source="$(basename "$1")" '/axonn_test\(/ { sub(/.*\(/, ""); name = $1 }
    { for (i = 1; i <= NF; ++i) if ($i == source) print name }' "$(dirname "$1")/CMakeLists.txt"
}

# suites_of SOURCE: its suites as a GoogleTest filter, "Suite.*:*/Suite.*".
suites_of() {
  sed -nE 's/^(TEST|TEST_F|TEST_P|TEST_SKIP)\((\w+).*/\2.*:*\/\2.*/p' "$1" | sort -u | paste -sd:
}

# is_wanted PROGRAM FILTER: whether one of the FILTERs of the command line is part of them.
is_wanted() {
  local filter
  for filter in "${wanted[@]}"; do [[ "$1 $2" == *"$filter"* ]] && return; done
  return 1
}

mapfile -t sources < <(grep -lE "$trains" tests/*/*/*_test.cpp)
tests=()
for source in "${sources[@]}"; do
  program=$(program_of "$source")
  if [[ -z $program ]]; then
    echo "perturb-tests.sh: no program of tests/ has $source" >&2
    exit 1
  fi
  suites=$(suites_of "$source")
  is_wanted "$program" "$suites" && tests+=("$program $suites")
done
readonly tests

# perturbed_run PROGRAM FILTER SEED: prints the output of one run, and keeps it if the run failed.
perturbed_run() {
  local instructions=("" AVX512_CORE AVX2) isa output
  isa=${instructions[$3 % ${#instructions[@]}]}
  output=$(mktemp "$logs/$(basename "$1").$3.XXX")
  if env ${isa:+DNNL_MAX_CPU_ISA=$isa} "AXONN_PERTURB_SEED=$3" "LD_PRELOAD=$library" \
    "$1" "--gtest_filter=$2" &>"$output"; then
    cat "$output" && rm "$output"
  else
    cat "$output"
  fi
}

# count: prints "FAILURES RUNS TEST" for each test in GoogleTest's output.
count() {
  awk '/^\[ RUN      \]/ { ++runs[$4] }
       /^\[       OK \]/ || /^\[  SKIPPED \] [^ ]+ \(/ { ++good[$4] }
       END { for (name in runs) print runs[name] - good[name], runs[name], name }' | sort -k 3
}

mapfile -t programs < <(printf '%s\n' "${tests[@]%% *}" | sort -u)
scripts/build.sh dev perturb_products "${programs[@]}" || exit
mkdir -p "$logs"
failed=0
for test in "${tests[@]}"; do
  read -r program filter <<<"$test"
  path=$(echo "$build"/tests/*/*/"$program")
  while read -r bad all name; do
    printf '%4d / %d  %s\n' "$bad" "$all" "$name"
    ((bad == 0)) || failed=1
  done < <(for ((seed = 1; seed <= runs; ++seed)); do
    perturbed_run "$path" "$filter" "$seed"
  done | count)
done
exit "$failed"
