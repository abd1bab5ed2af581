#!/bin/bash
# Builds and runs every test: all of them optimised, the unit tests under AddressSanitizer and
# UndefinedBehaviorSanitizer, communication and parallel layers under ThreadSanitizer; what of the
# cards' backend hipcc compiles for an AMD card, where hipcc is; then the format of the sources.
# Ends with "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0
failures=""
summary=""
readonly started=$SECONDS

# fail NAME: one more failure, which is not a test's.
fail() {
  failed=$((failed + 1))
  failures+="  $1"$'\n'
}

# count PRESET SECONDS: adds what the last ctest of the preset did.
count() {
  local counts ok bad skip
  counts=$(awk -v label="$1" -f scripts/count-tests.awk "build/$1/Testing/Temporary/LastTest.log")
  read -r ok bad skip <<<"$counts"
  passed=$((passed + ok))
  failed=$((failed + bad))
  skipped=$((skipped + skip))
  ((bad == 0)) || failures+=$(tail -n +2 <<<"$counts")$'\n'
  summary+=$(printf '  %-8s %5d passed %4d failed %4d skipped %5d s' "$1" "$ok" "$bad" "$skip" "$2")
  summary+=$'\n'
}

# run_preset PRESET "TARGETS" CTEST-ARGUMENTS...: no targets means all.
run_preset() {
  local preset=$1 targets=$2 begin=$SECONDS
  shift 2
  echo "== $preset: build"
  # shellcheck disable=SC2086
  if ! scripts/build.sh "$preset" $targets; then
    fail "$preset: build"
    return
  fi
  echo "== $preset: test"
  rm -f "build/$preset/Testing/Temporary/LastTest.log"
  "${runner[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@"
  if [[ ! -f build/$preset/Testing/Temporary/LastTest.log ]]; then
    fail "$preset: ctest found no tests"
    return
  fi
  count "$preset" $((SECONDS - begin))
}

# compile_for_amd: the target hip_compile_check, as one more test.
compile_for_amd() {
  local begin=$SECONDS outcome=passed
  echo "== hip-check: compile for gfx90a"
  if ! command -v hipcc >/dev/null; then
    echo "skipped: there is no hipcc here (Debian's packages hipcc and libamdhip64-dev)"
    skipped=$((skipped + 1))
    outcome="skipped: no hipcc"
  elif scripts/build.sh hip-check; then
    passed=$((passed + 1))
  else
    fail "hip-check: build"
    outcome=failed
  fi
  summary+=$(printf '  %-8s %s %5d s' hip-check "$outcome" $((SECONDS - begin)))
  summary+=$'\n'
}

runner=(env)
run_preset release "" -j 2
# Under sanitizers a few grids tell as much as all of them, which take minutes.
few='-*OnGrids.*EveryGrid*:TargetLosses.*EveryGrid*:GptOnGrids.NoCombination*:*OnTenGrids'
few+=':Study.Finds*'
runner=(env GTEST_FILTER="$few")
# Leaks in the MPI library are not ours to find: the unit tests start none.
run_preset asan "" -L unit -j 2
# Of the models' tests ThreadSanitizer has use for those in which ranks run late, in chunks, and
# through blocks again: the others compare numbers, or take minutes to do the same more often.
few+=':FaultsOfAGrid*:*LlamaReference*:ManyRanks*:Memory*:ModelConfig*:Padding*'
few+=':GptOnGrids.LossesDoNot*:GptOnGrids.TrainingLowers*'
runner=(env GTEST_FILTER="$few")
# ThreadSanitizer needs the addresses of its shadow, which some kernels' randomisation takes.
setarch "$(uname -m)" -R true 2>/dev/null && runner=(setarch "$(uname -m)" -R "${runner[@]}")
tsan=$(for folder in comm parallel model; do
  sed -n 's/^axonn_test(\([a-z_0-9]*\).*/\1/p' "tests/$folder/CMakeLists.txt" 2>/dev/null
done)
run_preset tsan "$tsan" -L unit -R "^($(paste -sd '|' <<<"$tsan"))\$"

compile_for_amd

echo "== format"
scripts/format.sh --check && passed=$((passed + 1)) || fail "format: run 'make format'"

echo
echo "$summary  in all $((SECONDS - started)) s"
if ((failed)); then printf 'failed:\n%s\n' "$failures"; fi
echo "$passed passed, $failed failed"
((failed == 0))
