#!/bin/bash
# Tests and times this machine's GPU: what is cheapest and tells most comes first, so that ten
# minutes are enough for most of it. Builds for the GPU, or uses the programs that
# scripts/gpu-bundle.sh packed.
#
#   scripts/gpu-check.sh [--rehearse] [--out FOLDER] [--copy FOLDER] [--deadline SECONDS]
#                        [--second | STEP ...]
#
# The first list of steps, in this order:
#   info        versions; the GPU must pass the program's self-test
#   operations  all tests of operations and exchanges; one that is skipped for want of a GPU fails
#   profile     bench --profile of three models: every operation beside its bound
#   rows        steps of three models: deterministic, not, tuned, with graphs
#   attention   attention by axonn's kernels and by cuDNN, also of long sequences
#   rates       probe; tune
#   bits        repetition, resumption, overlap, graphs, grids: to the bit; losses as on the CPU
#   torch       the same steps by PyTorch, compiled
#   memcheck    compute-sanitizer over the kernels of attention and norms
# The second (--second), for another time:
#   racecheck   compute-sanitizer over all of our own kernels
#   kernels     ncu: time, memory and tensor cores of the ten longest kernels of a step
#   generation  tokens per second
#   grids       more grids, in f32 and bf16
#
# Everything is written below the folder of --out (build/gpu-check): results.md, the logs of all
# commands, JSON. With --copy, after each step that folder gets two files, results.md and all.tar.gz
# with everything, for machines that give back few files, or end without a word.
# A command that does not fit before the deadline (560 s from the start; 0: none) is left out, and
# the results say so. Exits with 1 if anything failed; a missed goal is no failure.
#
# --rehearse runs the same commands at toy sizes on emulated GPUs (scripts/build.sh emulated).
set -uo pipefail
cd "$(dirname "$0")/.." || exit

fail_at_once() {
  echo "error: $1" >&2
  exit 2
}

first_steps="info operations profile rows attention rates bits torch memcheck"
second_steps="info racecheck kernels generation grids"
rehearse=0 out=build/gpu-check copy='' deadline=560 steps='' wanted=$first_steps
while (($#)); do
  case $1 in
    --rehearse) rehearse=1 ;;
    --second) wanted=$second_steps ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --copy) copy=${2:?--copy needs a folder}; shift ;;
    --deadline) deadline=${2:?--deadline needs seconds}; shift ;;
    *) [[ " $first_steps $second_steps " == *" $1 "* ]] ||
         fail_at_once "'$1' is not a step: $first_steps; $second_steps"
       steps+=" $1" ;;
  esac
  shift
done
steps=${steps:-$wanted}
if ((!rehearse)); then
  command -v nvidia-smi >/dev/null || fail_at_once "no nvidia-smi: run this where an NVIDIA GPU is"
  nvidia-smi >/dev/null || fail_at_once "nvidia-smi finds no GPU that works"
fi
mkdir -p "$out" || fail_at_once "$out cannot be made"
out=$(cd "$out" && pwd)
result=$out/results.md
if [[ -n $copy ]]; then mkdir -p "$copy" && copy=$(cd "$copy" && pwd) || exit 2; fi

# find_bundle: sets the programs, which find their libraries by themselves, but for CUDA's.
find_bundle() {
  local folder=$PWD/build/gpu-bundle cuda_libraries missing
  axonn=$folder/axonn ops_test=$folder/ops_cuda_test comm_test=$folder/comm_cuda_test
  attention_bench=$folder/bench_ops_attention_cuda generate_bench=$folder/bench_generate
  # CUDA's libraries: those of PyTorch, if the toolkit is missing.
  cuda_libraries=$(python3 - <<'PY' 2>/dev/null
import glob, os, site
roots = site.getsitepackages() + [site.getusersitepackages()]
print(":".join(sorted({os.path.dirname(f) for root in roots
                       for f in glob.glob(root + "/nvidia/**/lib*.so*", recursive=True)})))
PY
)
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64:$cuda_libraries
  PATH=$PATH:/usr/local/cuda/bin:$folder/compute-sanitizer
  missing=$(ldd "$axonn" "$ops_test" | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
  [[ -z $missing ]] || fail_at_once "this machine lacks libraries of the packed programs: $missing"
}

# set_programs PRESET: those of the build folder.
set_programs() {
  local folder=$PWD/build/$1
  axonn=$folder/bin/axonn ops_test=$folder/tests/compute/ops/ops_cuda_test
  comm_test=$folder/tests/ranks/comm/comm_cuda_test
  attention_bench=$folder/bench/bench_ops_attention_cuda
  generate_bench=$folder/bench/bench_generate
}

build() {
  local instead="use build/gpu-bundle.tar.xz of scripts/gpu-bundle.sh instead" tool
  for tool in nvcc cmake g++; do
    command -v $tool >/dev/null || fail_at_once "$tool was not found: install it, or $instead"
  done
  mkdir -p build/cuda
  cmake --preset cuda -DAXONN_CUDA_ARCH="$1" -DAXONN_BENCH=ON >build/cuda/configure.log 2>&1 || {
    grep -A3 "CMake Error" build/cuda/configure.log >&2
    fail_at_once "configuring failed (scripts/install-packages.sh --tests lists packages); $instead"
  }
  cmake --build --preset cuda --parallel "$(nproc)" --target axonn ops_cuda_test comm_cuda_test \
    bench_ops_attention_cuda bench_generate || fail_at_once "the build failed"
  set_programs cuda
}

gpu="emulated GPU" memory_gib=4
if ((rehearse)); then
  set_programs emulated
  for program in "$axonn" "$ops_test"; do
    [[ -x $program ]] || fail_at_once "no $program: scripts/build.sh emulated axonn ops_cuda_test"
  done
else
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  memory_gib=$(($(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits |
    head -n 1) / 1024))
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  arch=$capability-real
  [[ $capability == 90 ]] && arch=90a-real
  if [[ -x build/gpu-bundle/axonn ]]; then find_bundle; else build "$arch"; fi
fi

export AXONN_TESTS_NEED_GPU=1  # a test that is skipped for want of a GPU fails
work=$(mktemp -d)
# pack: what there is so far, for --copy.
pack() {
  [[ -z $copy ]] || { cp "$result" "$copy" && tar -czf "$copy/all.tar.gz" -C "$out" .; }
}
trap 'pack; rm -rf "$work"' EXIT
trap 'exit 143' TERM INT
began=$SECONDS
failures=0
export axonn work

# left: seconds until the deadline.
left() { ((deadline == 0)) && echo 100000 || echo $((deadline - (SECONDS - began))); }

# section TITLE HEADER: begins a table.
section() {
  printf '\n## %s\n\n%s\n%s\n' "$1" "$2" "${2//[^|]/}" |
    sed '$s/|/| --- /g; $s/ --- $//' >>"$result"
}

# log_of NAME: the file of a command's output.
log_of() { echo "$out/$(tr -cs '[:alnum:]\n' - <<<"$1").log"; }

# run NAME SECONDS COMMAND...: runs a command that takes about so many seconds, at most twice as
# many and to the deadline; its output goes to a log. Returns its status; 125: it was left out.
run() {
  local name=$1 about=$2 limit log status
  shift 2
  log=$(log_of "$name")
  limit=$(left)
  if ((about > limit)); then
    echo "== $name: left out, $limit s are left"
    return 125
  fi
  ((2 * about < limit && !rehearse)) && limit=$((2 * about))
  echo "== $name"
  timeout -k 5 "$limit" "$@" >"$log" 2>&1
  status=$?
  tail -n $((status == 0 ? 3 : 40)) "$log"
  return $status
}

# check NAME SECONDS COMMAND...: adds to the table whether the command succeeds.
check() {
  local begin=$SECONDS outcome
  run "$@"
  case $? in
    0) outcome=passed ;;
    124 | 137) outcome="**no end**"; failures=$((failures + 1)) ;;
    125) outcome="left out" ;;
    *) outcome="**FAILED**"; failures=$((failures + 1)) ;;
  esac
  echo "| $1 | $outcome | $((SECONDS - begin)) |" >>"$result"
  [[ $outcome == passed ]]
}
skip() { echo "== $1: skipped, $2"; echo "| $1 | skipped: $2 | 0 |" >>"$result"; }

# show NAME: adds a command's output to the results.
show() {
  # shellcheck disable=SC2016
  printf '\n%s\n\n```\n%s\n```\n' "$1" "$(cat "$(log_of "$1")")" >>"$result"
}

# train DIR KEYS...: a short run on the GPU, in bf16 unless KEYS say otherwise; its metrics are in
# DIR.
train() {
  local dir=$work/$1
  shift
  [[ $* == *training.dtype* ]] || set -- --training.dtype bf16 "$@"
  # shellcheck disable=SC2086
  "$axonn" train configs/tiny.toml --output.dir "$dir" --parallelism.device cuda \
    --training.eval_every 0 $run_keys "$@"
}

# column DIR KEY: prints one number per step.
column() { sed -nE "s/.*\"$2\": ?([-+.0-9e]+).*/\1/p" "$work/$1/metrics.jsonl"; }

# same_losses A B: succeeds if there are losses and all are equal to the last digit.
same_losses() { [[ -n $(column "$1" loss) ]] && diff <(column "$1" loss) <(column "$2" loss); }

# close_losses A B RELATIVE: succeeds if no loss differs by more than RELATIVE.
close_losses() {
  paste <(column "$1" loss) <(column "$2" loss) | awk -v most="$3" '
    {d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; n++}
    END {printf "%d losses, largest relative difference %.2g\n", n, worst
         exit !(n > 0 && worst <= most)}'
}

gpu_and_processor() {  # DTYPE RELATIVE
  train "gpu-$1" --training.dtype "$1" &&
    train "cpu-$1" --training.dtype "$1" --parallelism.device cpu &&
    close_losses "gpu-$1" "cpu-$1" "$2"
}
repetition() { train again-a && train again-b && same_losses again-a again-b; }
resumption() {
  train whole --checkpoint.every "$half" &&
    train parts --checkpoint.every "$half" &&
    rm -r "$work/parts/checkpoints/step-$((2 * half))" "$work/parts/checkpoints/latest" &&
    train parts --checkpoint.resume "$work/parts/checkpoints/step-$half" && same_losses whole parts
}
overlap() {
  local grid=(--parallelism.x 2 --parallelism.z 2 --parallelism.data 2)
  train with "${grid[@]}" &&
    train without "${grid[@]}" --parallelism.overlap_input_gradients false \
      --parallelism.overlap_weight_gradients false --parallelism.overlap_weights false \
      --parallelism.overlap_data false && same_losses with without
}
graphs() {  # one micro-batch a step, three, recomputation
  local keys n=0
  for keys in "" "--training.micro_batch 8" "--activation_checkpoint.mode full"; do
    n=$((n + 1))
    # shellcheck disable=SC2086
    train "launched-$n" --training.cuda_graph true $keys && train "enqueued-$n" $keys &&
      same_losses "launched-$n" "enqueued-$n" || return 1
  done
}
# Heads of 64 in bf16 are those that cuDNN and our own fused kernels compute.
half=5 run_keys='--training.steps 10 --model.hidden 256 --model.heads 4 --training.seq_len 128'
((rehearse)) && half=3 run_keys='--training.steps 6 --model.layers 1 --model.hidden 32
  --model.heads 4 --training.eval_batches 1'
export half run_keys
export -f train column same_losses close_losses gpu_and_processor repetition resumption overlap
export -f graphs

# keys_of MODEL: the configuration of a model of the rows; flags_of MODEL: PyTorch's.
llama_layers=12  # with AdamW 12 layers need 60 GB, 16 need 85
((memory_gib > 120)) && llama_layers=16
keys_of() {
  if ((rehearse)); then
    echo "--model.layers 1 --model.hidden 32 --model.heads 2 --model.vocab 256
      --data.tokenizer bytes --data.synthetic 100KB --training.seq_len 32
      --training.global_batch 2"
    return
  fi
  case $1 in
    124M) echo "--training.seq_len 1024 --training.global_batch 32" ;;
    1.5B) echo "--model.layers 48 --model.hidden 1600 --model.heads 25 --training.seq_len 1024
            --training.global_batch 16" ;;
    llama) echo "--model.family llama --model.layers $llama_layers --model.hidden 4096
             --model.heads 32 --model.kv_heads 8 --model.ffn 14336 --model.tied false
             --training.seq_len 4096 --training.global_batch 8 --training.micro_batch 2" ;;
  esac
}
flags_of() {
  if ((rehearse)); then
    echo "--layers 1 --hidden 32 --heads 2 --vocab 256 --batch 2 --seq 32 --device cpu --eager"
    return
  fi
  case $1 in
    124M) echo "--layers 12 --hidden 768 --heads 12 --batch 32 --seq 1024" ;;
    llama) echo "--family llama --layers $llama_layers --hidden 4096 --heads 32 --kv-heads 8
             --ffn 14336 --batch 8 --micro-batches 4 --seq 4096" ;;
  esac
}
models="124M 1.5B llama"
((rehearse)) && models="124M"

# bench NAME SECONDS MODEL FLAGS...: a measurement by axonn bench.
bench() {
  local name=$1 about=$2 model=$3
  shift 3
  # shellcheck disable=SC2046
  run "$name" "$about" "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda \
    --output.dir "$work/bench" --json "$out/$(tr -cs '[:alnum:]\n' - <<<"$name").json" \
    $(keys_of "$model") "$@"
}

# figure NAME KEY: prints a number of the JSON that bench wrote.
figure() {
  sed -nE "s/.*\"$2\": ?([-+.0-9e]+).*/\1/p" "$out/$(tr -cs '[:alnum:]\n' - <<<"$1").json" |
    head -n 1
}

peak=989  # Tflop/s of an H100's or H200's products in bf16, by its data sheet

# row MODEL GOAL WHAT SECONDS KEYS...: adds a line to the table of steps. GOAL: the least percentage
# of the peak.
row() {
  local model=$1 goal=$2 about=$4 name="$1 $3" status outcome="**FAILED**"
  shift 4
  bench "$name" "$about" "$model" --parallelism.peak_tflops $peak "$@"
  status=$?
  if ((status != 0)); then
    ((status == 125)) && outcome="left out" || failures=$((failures + 1))
    echo "| $name | $outcome | | | | |" >>"$result"
    return
  fi
  awk -v name="$name" -v goal="$goal" -v s="$(figure "$name" step_s)" \
    -v t="$(figure "$name" tokens_per_s)" -v f="$(figure "$name" model_tflops)" \
    -v m="$(figure "$name" measured_bytes)" -v peak=$peak 'BEGIN {
      share = 100 * f / peak
      printf "| %s | %.2f | %.0f | %.1f | %.1f %%, goal %d: %s | %.1f GiB |\n", name, s * 1e3, t, f,
             share, goal, (share >= goal ? "met" : "missed"), m / 2^30}' >>"$result" ||
    failures=$((failures + 1))
}

step_info() {
  local log
  log=$(log_of info)
  "$axonn" info >"$log" 2>&1
  {
    echo "# $gpu, $(date +%F)"
    echo
    echo '```'
    cat "$log"
    grep -m 1 "model name" /proc/cpuinfo
    ((rehearse)) || nvidia-smi \
      --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.sm,power.limit --format=csv
    python3 -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null || echo "no PyTorch"
    echo '```'
  } >"$result"
  grep -q "GPU 0:.*passes the self-test" "$log" || {
    cat "$log" >&2
    fail_at_once "GPU 0 does not pass the self-test of axonn info, above"
  }
}

step_operations() {
  section "Operations" "| check | outcome | seconds |"
  local some='-*Cudnn*'
  ((rehearse)) && some='*Norm*:CudaGraph*:AttentionPieces*'
  check "operations" 60 "$ops_test" --gtest_filter="$some"
  if ((!rehearse)); then
    check "attention by cuDNN" 60 "$ops_test" --gtest_filter='*Cudnn*'
  fi
  some='*'
  ((rehearse)) && some='*Shares*:*Nccl*'
  check "exchanges between GPUs" 30 "$comm_test" --gtest_filter="$some"
}

step_profile() {
  section "Profiles" "| check | outcome | seconds |"
  local model
  for model in $models; do
    check "profile $model" 30 bash -c "profile $model" && show "profile $model"
  done
}
profile() {
  # shellcheck disable=SC2046
  "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda --output.dir "$work/bench" \
    --profile --json "$out/profile-$1.json" $(keys_of "$1")
}
export -f profile keys_of
export rehearse llama_layers out

step_rows() {
  section "Steps" "| model | ms per step | tokens/s | Tflop/s | of $peak Tflop/s | memory |"
  local free="--training.deterministic false"
  row 124M 45 "deterministic" 15
  # shellcheck disable=SC2086
  row 124M 45 "not deterministic" 15 $free
  row 124M 45 "deterministic, graphs" 15 --training.cuda_graph true
  ((rehearse)) || {
    row 1.5B 55 "deterministic" 20
    # shellcheck disable=SC2086
    row llama 60 "deterministic" 25
    # shellcheck disable=SC2086
    row llama 60 "not deterministic" 25 $free
  }
  row 124M 45 "deterministic, tuned" 40 --training.tune true \
    --training.tune_cache "$out/products.json"
  printf '\n%s\n' "bf16; ten iterations, the mean of the last eight; flops count the causal half." \
    >>"$result"
}

step_attention() {
  section "Attention" "| check | outcome | seconds |"
  [[ -x $attention_bench ]] || { skip "attention" "$attention_bench was not built"; return; }
  check "attention" 60 "$attention_bench" && show "attention"
}

step_rates() {
  section "Rates" "| check | outcome | seconds |"
  local config=configs/gpt2-124m.toml keys="--training.seq_len 1024 --training.global_batch 32"
  local quick=''  # sizes for processors, which only show the time to start a kernel on a GPU
  ((rehearse)) && config=configs/tiny.toml keys='' quick=--quick
  # shellcheck disable=SC2086
  check "probe" 60 "$axonn" probe $quick --ranks 2 --device cuda --out "$out/machine.toml" \
    --overwrite
  # shellcheck disable=SC2086
  check "tune" 40 "$axonn" tune $config --parallelism.device cuda --training.dtype bf16 $keys \
    --data.synthetic 1MB --training.tune_cache "$out/products.json" --output.dir "$work/tune" &&
    show "tune"
}

step_bits() {
  section "Runs" "| check | outcome | seconds |"
  local grids="2,1,1,1 1,2,1,1 2,1,2,1 2,2,2,1"
  ((rehearse)) && grids="2,1,1,1 2,1,2,1"
  check "ten steps in f32 as on the CPU" 10 bash -c 'gpu_and_processor f32 1e-4'
  check "ten steps in bf16 as on the CPU" 10 bash -c 'gpu_and_processor bf16 1e-2'
  check "ten steps with our own attention as on the CPU" 10 bash -c \
    'run_keys+=" --training.attention own"; gpu_and_processor bf16 1e-2'
  check "the same run twice, to the bit" 10 bash -c repetition
  check "a resumed run, to the bit" 10 bash -c resumption
  check "with and without overlap, to the bit" 15 bash -c overlap
  check "with and without graphs, to the bit" 15 bash -c graphs
  check "grids that share one GPU, bf16" 20 "$axonn" check configs/tiny.toml \
    --parallelism.device cuda --grids "$grids" --steps 2 --training.dtype bf16
}

step_torch() {
  section "PyTorch" "| check | outcome | seconds |"
  local model
  python3 -c 'import torch' 2>/dev/null || { skip "PyTorch" "it was not found"; return; }
  for model in 124M llama; do
    [[ $model == 124M ]] || ((!rehearse)) || continue
    # shellcheck disable=SC2046
    check "PyTorch, $model" 50 python3 bench/torch_cuda.py $(flags_of $model) &&
      show "PyTorch, $model"
  done
}

sanitize() {  # TOOL SECONDS FILTER
  if ((rehearse)); then
    skip "operations under $1" "emulated GPUs have no kernels for it"
  elif command -v compute-sanitizer >/dev/null; then
    check "operations under $1" "$2" compute-sanitizer --tool "$1" --error-exitcode 1 \
      "$ops_test" --gtest_filter="$3"
  else
    skip "operations under $1" "compute-sanitizer was not found"
  fi
}
step_memcheck() {
  section "Sanitizer" "| check | outcome | seconds |"
  sanitize memcheck 60 '*Attention*:*Norm*-*Cudnn*'
}
step_racecheck() {
  section "Races" "| check | outcome | seconds |"
  sanitize racecheck 250 '-*Cudnn*:Matmul*'  # our own kernels: libraries' are slow under it
}

step_kernels() {
  section "Kernels" "| check | outcome | seconds |"
  { ((!rehearse)) && command -v ncu >/dev/null; } || { skip "kernels" "no ncu"; return; }
  local metrics=gpu__time_duration.sum,dram__bytes.sum
  metrics+=,sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active
  # shellcheck disable=SC2046
  check "kernels of a step" 150 ncu --clock-control none --metrics $metrics --launch-skip 2000 \
    --launch-count 800 --csv "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda \
    --output.dir "$work/bench" $(keys_of 124M)
}

step_generation() {
  section "Generation" "| check | outcome | seconds |"
  [[ -x $generate_bench ]] || { skip "generation" "$generate_bench was not built"; return; }
  local generated="gpt2-1.5b bf16 128 cuda"
  ((rehearse)) && generated="tiny bf16 2 cuda"
  # shellcheck disable=SC2086
  check "generation, goal: a share of 80 %" 75 "$generate_bench" $generated &&
    show "generation, goal: a share of 80 %"
}

step_grids() {
  section "Grids" "| check | outcome | seconds |"
  local grids="1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1 1,1,1,2 2,2,1,1 2,1,2,1 1,2,1,2 2,2,2,1 2,1,2,2
    4,1,2,1" dtype
  ((rehearse)) && grids="1,1,1,1 2,1,2,1"
  for dtype in f32 bf16; do
    check "grids of up to eight ranks on one GPU, $dtype" 60 "$axonn" check configs/tiny.toml \
      --parallelism.device cuda --grids "$grids" --steps 2 --training.dtype "$dtype"
  done
}

step_info
for step in $steps; do
  [[ $step == info ]] || "step_$step"
  pack
done

echo
cat "$result"
((failures == 0)) || echo "$failures failed"
((failures == 0))
