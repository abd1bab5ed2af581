#!/bin/bash
# Usage: scripts/perturb-tests.sh [RUNS] [FILTER...]
#
# Runs the tests that train until something is learned, or that compare trained models, RUNS times
# each (default 100), every time with a different rounding of the matrix products. Prints failures /
# runs of each test and exits with 1 if one failed. With FILTERs it runs only the lines of the list
# below that contain one of them.
#
# Run i uses the seed i of tests/support/perturb_products.cpp. oneDNN's products use AVX2, AVX-512
# and the machine's newest instructions in turn. The output of failed runs is kept in
# build/dev/perturbed.
set -uo pipefail
cd "$(dirname "$0")/.."

# PROGRAM GOOGLETEST-FILTER
readonly tests=(
  "memorize_test Study.*:Audit.*"
  "model_test GptOnGrids.TrainingLowers*:LoraOnGrids.TrainingLearns*:Experts.OfEveryRouter*"
  "model_test LoraOnGrids.*Dropout*:*OnGrids.Bfloat16*"
  "train_test Trainer.*:Nonfinite.*:Corruption.*:GoldfishTraining.*:FineTuning.*:Outliers.*"
  "train_test Resume.*:Checkpoints.*:Patience.*"
  "infer_test Generator.*:*GeneratorOf.*:TextSampler.*"
  "cli_program_test Generate*:LoraCommand.*:ConvertCommand.*:EvalCommand.*"
)

readonly runs=${1:-100}
shift
readonly wanted=("${@:-}")
readonly build=build/dev
readonly library=$PWD/$build/tests/libperturb_products.so
readonly logs=$build/perturbed

# is_wanted LINE: whether a line of the list contains one of the FILTERs.
is_wanted() {
  local filter
  for filter in "${wanted[@]}"; do [[ $1 == *"$filter"* ]] && return; done
  return 1
}

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
  is_wanted "$test" || continue
  read -r program filter <<<"$test"
  path=$(echo "$build"/tests/*/"$program")
  while read -r bad all name; do
    printf '%4d / %d  %s\n' "$bad" "$all" "$name"
    ((bad == 0)) || failed=1
  done < <(for ((seed = 1; seed <= runs; ++seed)); do
    perturbed_run "$path" "$filter" "$seed"
  done | count)
done
exit "$failed"
