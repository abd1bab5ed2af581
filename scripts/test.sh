#!/bin/bash
# test.sh [--limit SECONDS]: builds and runs every test, in these parts:
#
#   dev        all tests, optimised, with the CUDA backend if CUDA is found (a GPU is not needed)
#   dispatch   operations, parallel layers and a short training with the kernels of packages, for
#              each set of instructions that the processor has; the packages themselves
#   emulated   the CUDA backend, NCCL's transport and trainings on GPUs that the CPU emulates
#   emulated-amd  attention and norms with the warps and matrix instructions of AMD GPUs, likewise
#   asan       unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan       communication, parallel layers and models under ThreadSanitizer
#   emulated-tsan  operations and collectives on emulated GPUs under ThreadSanitizer
#   hip-check  compiles the GPU backend for AMD GPUs, if hipcc is found
#   debian-13  operations, MPI and a short training on several grids in Debian 13, whose libraries
#              and compiler are newer, if this machine can make such a system
#   format     checks the format of the sources
#
# debian-13 is left out if more than half of the limit is over, so that the rest counts.
#
# Prints the seconds of each part, a warning if they exceed half of the limit, and in the last line
# "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."

limit=0
[[ ${1:-} != --limit ]] || limit=$2

passed=0
failed=0
skipped=0
failures=""
summary=""
readonly started=$SECONDS

# fail NAME: counts a failure that is not a test's.
fail() {
  failed=$((failed + 1))
  failures+="  $1"$'\n'
}

# note_time PART SECONDS [TEXT]: adds a line to the table of times.
note_time() {
  summary+=$(printf '  %-16s %5d s%s' "$1" "$2" "${3:+  $3}")
  summary+=$'\n'
}

# count PART SECONDS: adds the results of the part's last ctest, whose log is on standard input.
count() {
  local counts ok bad skip
  counts=$(awk -v label="$1" -f scripts/count-tests.awk)
  read -r ok bad skip <<<"$counts"
  passed=$((passed + ok))
  failed=$((failed + bad))
  skipped=$((skipped + skip))
  ((bad == 0)) || failures+=$(tail -n +2 <<<"$counts")$'\n'
  note_time "$1: test" "$2" "$ok passed, $bad failed, $skip skipped"
}

# run_preset PRESET "TARGETS" CTEST-ARGUMENTS...: builds the targets (all if empty) and runs ctest;
# as part `part`, through the command `where`, if they are set.
part="" where=()
run_preset() {
  local preset=$1 targets=$2 part=${part:-$1} begin=$SECONDS
  local log=build/$preset/Testing/Temporary/LastTest.log
  shift 2
  echo "== $part: build"
  # shellcheck disable=SC2086
  if ! "${where[@]}" scripts/build.sh "$preset" $targets; then
    fail "$part: build"
    note_time "$part: build" $((SECONDS - begin)) failed
    return
  fi
  note_time "$part: build" $((SECONDS - begin))
  echo "== $part: test"
  begin=$SECONDS
  "${where[@]}" rm -f "$log"
  "${where[@]}" "${runner[@]}" ctest --test-dir "build/$preset" --output-on-failure \
    --no-tests=error "$@"
  if ! "${where[@]}" test -f "$log"; then
    fail "$part: ctest found no tests"
    return
  fi
  count "$part" $((SECONDS - begin)) < <("${where[@]}" cat "$log")
}

# in_debian_13 "TARGETS" CTEST-ARGUMENTS...: as run_preset dev, in Debian 13.
in_debian_13() {
  local begin=$SECONDS part=debian-13 where=(scripts/in-debian.sh 13) reason
  echo "== $part: make the system"
  reason=$("${where[@]}" true 2>&1 >/dev/null)
  if (($? == 77)); then
    echo "skipped: $reason"
    skipped=$((skipped + 1))
    note_time "$part" $((SECONDS - begin)) "skipped: $reason"
  elif "${where[@]}" scripts/install-packages.sh --unit-tests; then
    note_time "$part: packages" $((SECONDS - begin))
    run_preset dev "$@"
  else
    fail "$part: packages"
  fi
}

# compile_for_amd: builds target hip_compile_check and counts it as a test.
compile_for_amd() {
  local begin=$SECONDS outcome=passed
  echo "== hip-check: compile for gfx90a"
  if ! command -v hipcc >/dev/null; then
    echo "skipped: hipcc was not found (Debian packages hipcc and libamdhip64-dev)"
    skipped=$((skipped + 1))
    outcome="skipped: no hipcc"
  elif scripts/build.sh hip-check; then
    passed=$((passed + 1))
  else
    fail "hip-check: build"
    outcome=failed
  fi
  note_time "hip-check: build" $((SECONDS - begin)) "$outcome"
}

runner=(env)
run_preset dev "" -j 2
# All but the kernels comes from the compiler cache.
run_preset dispatch "axonn ops_test ops_threads_test parallel_test" \
  -R '^(ops|ops_threads|parallel)_test|^check_|^packages_' -j 2
run_preset emulated gpu_tests -L gpu -j 2
# What depends on the number of lanes of a warp: matrix instructions, sums over a block.
runner=(env "GTEST_FILTER=Executor.*:Attention.*:QueryBlocks.*:*Norm*")
run_preset emulated-amd "emulated_gpu_test ops_cuda_test" -R '^(emulated_gpu|ops_cuda)_test$' -j 2
runner=(env)
# Under sanitizers, tests that loop over grids use few grids. Tests that repeat the same code for
# minutes, to compare more numbers, to count bytes or until a model has learned, are left out.
export AXONN_TEST_SANITIZED=1
few='-Memory*:DryStep*:Bench.*:Estimate*:PublishedRuns*:PlanReport*:Search*:ManyRanks*'
few+=':*TrainingLowers*:*TrainingLearns*:Study.Finds*:Study.Resumes*:Study.GivesTheSame*'
few+=':GptOnGrids.LossesDoNot*:*ChunksRecomputationAnd*:FineTuning.HasTheLosses*'
few+=':FineTuning.ResumesToTheBit*:FineTuning.TakesTheMemory*:StepGraphs.ChangeNoBitO*'
few+=':Tune.ChangesNoBit*:Generator.CachesOnlyTheWindow*:Sampling.DrawsEvery*'
few+=':WriteTensors.LargeTensors*:ConfigKeys.ATypoOfOneEdit*:Padding*:FaultsOfAGrid*'
few+=':*GeneratorOf.*/Mistral:*GeneratorOf.*/Qwen3:*GeneratorOf.*/GroupedGpt'
few+=':Outliers.ByDeviations*:Outliers.AreNo*:Outliers.APlanted*:Recomputation.HasTheSame*'
few+=':BatchRamp.ResumesToTheBit*:DocumentsTraining.HasTheLosses*:Context.ChunksAndAccumulation*'
few+=':OptimizersOnGrids.Neither*:LlamaOnGrids.ApertusHasTheSame*:ExpertChoices*'
runner=(env GTEST_FILTER="$few")
# The unit tests do not use MPI, so leaks in the MPI library are not reported.
run_preset asan unit_tests -L unit -LE project -j 2
# Of the models' tests, ThreadSanitizer runs those in which ranks run late or recompute blocks. The
# others compare numbers.
few+=':*LlamaReference*:ModelConfig*:Experts.OfOther*:Experts.Bal*:Experts.Bias*:Experts.Chunks*'
few+=':Experts.A*:Experts.Bfloat16*:Experts.Rows*'
runner=(env GTEST_FILTER="$few")
# ThreadSanitizer needs fixed shadow addresses, which address randomisation may take.
setarch "$(uname -m)" -R true 2>/dev/null && runner=(setarch "$(uname -m)" -R "${runner[@]}")
tsan=$(for folder in comm parallel nn model; do
  sed -n 's/^axonn_test(\([a-z_0-9]*\).*/\1/p' "tests/$folder/CMakeLists.txt" 2>/dev/null
done)
run_preset tsan "$tsan" -L unit -R "^($(paste -sd '|' <<<"$tsan"))\$" -j 2
# On emulated GPUs: tests of each kernel that has barriers, and NCCL. Trainings take minutes
# (tests/emulated_gpu/README.md). ThreadSanitizer does not know the barriers of OpenMP's threads.
few='Softmax*:CrossEntropy.Equals*:LayerNorm.*:Embedding*:CachedAttention.TakesSeveral*'
few+=':CachedAttention.OfLong*:Attention.WithStarts*:CudaGraph*:OnGpus.NcclGives*'
runner+=(GTEST_FILTER="$few" OMP_THREAD_LIMIT=1)
run_preset emulated-tsan "ops_cuda_test comm_cuda_test emulated_races" \
  -R '^(ops_cuda|comm_cuda|emulated_races)_test$' -j 2

compile_for_amd

runner=(env)
if ((limit && 2 * (SECONDS - started) > limit)); then  # a slow machine
  echo "skipped: debian-13, because more than half of the time limit is over"
  skipped=$((skipped + 1))
  note_time debian-13 0 "skipped: more than half of the time limit was over"
else
  in_debian_13 "axonn ops_test comm_mpi_program" \
    -R '^(ops_test|check_f32|check_bf16|comm_mpi_program)$' -j 2
fi

echo "== format"
begin=$SECONDS
scripts/format.sh --check
case $? in
  0) passed=$((passed + 1)) ;;
  77) skipped=$((skipped + 1)) ;;
  *) fail "format: run 'make format'" ;;
esac
note_time format $((SECONDS - begin))
note_time "total" $((SECONDS - started))

echo
echo "$summary"
if ((limit && 2 * (SECONDS - started) > limit)); then
  echo "warning: the run took $((SECONDS - started)) of at most $limit s, more than half"
fi
if ((failed)); then printf 'failed:\n%s\n' "$failures"; fi
echo "$passed passed, $failed failed"
((failed == 0))
