#!/bin/bash
# Tests and times this machine's GPU. Builds for it, or uses the programs that scripts/gpu-bundle.sh
# packed, and does these steps, or those that are named, in this order:
#
#   sanitizer   compute-sanitizer's memcheck and racecheck over the tests of operations
#   operations  the tests of operations, attention's gradients and products' epilogues first
#   tune        axonn tune
#   parity      ten steps as on the CPU
#   bench       training steps and generation, next to their goals and to PyTorch, in one run
#   runs        grids, repetition, resumption, overlap and graphs, to the bit; attention's speed
#
#   scripts/gpu-check.sh [--rehearse] [--results FILE] [STEP ...]
#
# Each command has a time limit of its own, so that one that hangs costs little: the steps up to
# parity take at most ten minutes together, and so do bench and runs. Adds to the results, by
# default bench/results/DATE-CARD.md, which has the date, the hardware and both sides of each
# comparison. Exits with 1 if anything failed; a missed goal is no failure.
#
# --rehearse runs the same commands at toy sizes on emulated GPUs (scripts/build.sh emulated).
set -uo pipefail
cd "$(dirname "$0")/.." || exit

fail_at_once() {
  echo "error: $1" >&2
  exit 2
}

all_steps="sanitizer operations tune parity bench runs"
rehearse=0 result='' steps=''
while (($#)); do
  case $1 in
    --rehearse) rehearse=1 ;;
    --results) result=${2:?--results needs a file}; shift ;;
    *) [[ " $all_steps " == *" $1 "* ]] || fail_at_once "'$1' is not a step: $all_steps"
       steps+=" $1" ;;
  esac
  shift
done
steps=${steps:-$all_steps}

# find_bundle: sets the programs and their libraries.
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
  LD_LIBRARY_PATH=$folder/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH+=:$cuda_libraries
  PATH=$PATH:/usr/local/cuda/bin:$folder/compute-sanitizer
  missing=$(ldd "$axonn" "$ops_test" | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
  [[ -z $missing ]] || fail_at_once "this machine lacks libraries of the packed programs: $missing"
}

# set_programs PRESET: those of the build folder.
set_programs() {
  local folder=$PWD/build/$1
  axonn=$folder/bin/axonn ops_test=$folder/tests/ops/ops_cuda_test
  comm_test=$folder/tests/comm/comm_cuda_test
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

if ((rehearse)); then
  gpu="emulated GPU"
  set_programs emulated
  for program in "$axonn" "$ops_test"; do
    [[ -x $program ]] || fail_at_once "no $program: scripts/build.sh emulated axonn ops_cuda_test"
  done
  [[ -n $result ]] || rm -f build/emulated/gpu-check.md
  result=${result:-build/emulated/gpu-check.md}
else
  command -v nvidia-smi >/dev/null || fail_at_once "no nvidia-smi: run this where an NVIDIA GPU is"
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  arch=$capability-real
  [[ $capability == 90 ]] && arch=90a-real
  if [[ -x build/gpu-bundle/axonn ]]; then find_bundle; else build "$arch"; fi
  gpu_name=$(tr -cs '[:alnum:]' - <<<"${gpu,,}" | sed 's/-$//')
  result=${result:-bench/results/$(date +%F)-$gpu_name.md}
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
export axonn work

if [[ ! -s $result ]]; then
  {
    echo "# $gpu, $(date +%F)"
    echo
    echo '```'
    "$axonn" info
    grep -m 1 "model name" /proc/cpuinfo
    ((rehearse)) ||
      nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
    python3 -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null || echo "no PyTorch"
    echo '```'
  } >"$result"
fi

# section TITLE HEADER: begins a table.
section() {
  printf '\n## %s\n\n%s\n%s\n' "$1" "$2" "${2//[^|]/}" |
    sed '$s/|/| --- /g; $s/ --- $//' >>"$result"
}

# log_of NAME: the file of a check's output.
log_of() { echo "$work/$(tr -cs '[:alnum:]\n' - <<<"$1").log"; }

# show NAME: adds a check's output to the results.
show() {
  # shellcheck disable=SC2016
  printf '\n```\n%s\n```\n' "$(cat "$(log_of "$1")")" >>"$result"
}

# check NAME SECONDS COMMAND...: records whether the command succeeds within that time; if not,
# prints the end of its output.
check() {
  local name=$1 limit=$2 begin=$SECONDS outcome=passed log status
  shift 2
  ((rehearse)) && limit=$((10 * limit))  # emulation is slow
  log=$(log_of "$name")
  echo "== $name"
  timeout -k 5 "$limit" "$@" >"$log" 2>&1
  status=$?
  if ((status != 0)); then
    outcome="**FAILED**"
    ((status != 124)) || outcome="**no end** in $limit s"
    failures=$((failures + 1))
    tail -n 40 "$log"
  else
    tail -n 3 "$log"
  fi
  echo "| $name | $outcome | $((SECONDS - begin)) |" >>"$result"
}
skip() { echo "== $1: skipped, $2"; echo "| $1 | skipped: $2 | 0 |" >>"$result"; }

# train DIR KEYS...: a short run on the GPU; its metrics are in DIR.
train() {
  local dir=$work/$1
  shift
  # shellcheck disable=SC2086
  "$axonn" train configs/tiny.toml --output.dir "$dir" --parallelism.device cuda \
    --training.eval_every 0 $run_keys "$@"
}

# column DIR KEY: prints one number per step.
column() { sed -nE "s/.*\"$2\": ?([-+.0-9e]+).*/\1/p" "$work/$1/metrics.jsonl"; }

# same_losses A B: succeeds if all losses are equal to the last digit.
same_losses() { diff <(column "$1" loss) <(column "$2" loss); }

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
half=25 toy='' few=''
((rehearse)) && half=3 few='--training.steps 6' toy='--model.layers 1 --model.hidden 32
  --model.heads 4 --training.eval_batches 1'
export half
export -f train column same_losses close_losses gpu_and_processor repetition resumption overlap
export -f graphs

# figure FILE KEY: prints a number of the JSON that bench wrote.
figure() { sed -nE "s/.*\"$2\": ?([-+.0-9e]+).*/\1/p" "$1" | head -n 1; }

peak=989  # Tflop/s of an H100's or H200's products in bf16, by its data sheet
if ((rehearse)); then torch_keys="--device cpu --eager"; else torch_keys=; fi

# row NAME GOAL "AXONN'S KEYS" "PYTORCH'S FLAGS": adds a line to the table of steps. GOAL: the
# least percentage of the peak. The other goal is 1.1 times PyTorch's tokens per second.
row() {
  local json=$work/bench.json torch torch_s
  echo "== $1"
  rm -f "$json"
  # It also times large products, which take minutes on an emulated GPU.
  # shellcheck disable=SC2086
  timeout -k 5 $((rehearse ? 1500 : 75)) "$axonn" bench configs/gpt2-124m.toml \
    --parallelism.device cuda --json "$json" --parallelism.peak_tflops $peak \
    --output.dir "$work/bench" $3 2>&1 | tail -n 12
  # shellcheck disable=SC2086
  torch=$(timeout -k 5 100 python3 bench/torch_cuda.py $torch_keys $4 2>&1 | tail -n 1)
  echo "PyTorch: $torch"
  if [[ ! -f $json ]]; then
    echo "| $1 | **FAILED** | | | | | $torch | | |" >>"$result"
    failures=$((failures + 1))
    return
  fi
  torch_s=$(sed -nE 's/.* ([0-9]+) tokens\/s.*/\1/p' <<<"$torch")
  awk -v name="$1" -v goal="$2" -v s="$(figure "$json" step_s)" \
    -v t="$(figure "$json" tokens_per_s)" \
    -v f="$(figure "$json" model_tflops)" -v m="$(figure "$json" memory_bytes)" -v peak=$peak \
    -v torch="${torch:-no answer}" -v torch_s="${torch_s:-0}" 'BEGIN {
      share = 100 * f / peak
      met = share >= goal ? "met" : "missed"
      if (torch_s == 0) than = "unknown"
      else than = sprintf("%.2f: %s", t / torch_s, t >= 1.1 * torch_s ? "met" : "missed")
      printf "| %s | %.1f | %.0f | %.0f | %.1f %% | %.1f GiB | %s | %d %%: %s | %s |\n",
             name, s * 1e3, t, f, share, m / 2^30, torch, goal, met, than}' >>"$result"
}

# bench_step_ms "AXONN'S KEYS": prints milliseconds per step; nothing if it fails.
bench_step_ms() {
  local json=$work/graphs.json
  rm -f "$json"
  # shellcheck disable=SC2086
  timeout -k 5 40 "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda --json "$json" \
    --output.dir "$work/bench" $1 >"$work/graphs.log" 2>&1 || tail -n 12 "$work/graphs.log" >&2
  [[ ! -f $json ]] || awk -v s="$(figure "$json" step_s)" 'BEGIN {printf "%.2f", s * 1e3}'
}

# graph_row NAME "AXONN'S KEYS": adds a line to the table of steps with and without graphs.
graph_row() {
  local without from
  echo "== graphs: $1"
  without=$(bench_step_ms "$2")
  from=$(bench_step_ms "$2 --training.cuda_graph true")
  echo "without graphs ${without:-failed}, with graphs ${from:-failed} ms"
  [[ -n $without && -n $from ]] || failures=$((failures + 1))
  echo "| $1 | ${without:-failed} | ${from:-failed} |" >>"$result"
}

step_sanitizer() {
  section "Sanitizers" "| check | outcome | seconds |"
  local tool filter
  # Those whose kernels are ours: the libraries' are slow under it, and not ours to mend.
  filter='-*CudnnAttention*:Matmul*'
  for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      check "operations under $tool" 130 compute-sanitizer --tool $tool --error-exitcode 1 \
        "$ops_test" --gtest_filter="$filter"
    elif ((rehearse)); then  # the emulated GPU checks accesses itself
      check "operations under $tool" 30 "$ops_test" --gtest_filter="Norm*:CudaGraph*"
    else
      skip "operations under $tool" "compute-sanitizer was not found"
    fi
  done
}

step_operations() {
  section "Operations" "| check | outcome | seconds |"
  local epilogues='*Epilogue*:*Fus*' attention='*Attention*'
  check "attention and its gradients" 60 "$ops_test" --gtest_filter="$attention"
  check "epilogues of products" 40 "$ops_test" --gtest_filter="$epilogues"
  check "other operations" 60 "$ops_test" --gtest_filter="-$attention:$epilogues"
}

step_tune() {
  section "Tuning" "| check | outcome | seconds |"
  local config=configs/gpt2-124m.toml keys="--training.seq_len 1024 --training.global_batch 32"
  ((rehearse)) && config=configs/tiny.toml keys=
  # shellcheck disable=SC2086
  check "tune" 80 "$axonn" tune $config --parallelism.device cuda --training.dtype bf16 $keys \
    --data.synthetic 1MB --training.tune_cache "$work/products.json" --output.dir "$work/tune"
  show tune
}

step_parity() {
  section "Parity" "| check | outcome | seconds |"
  export run_keys="$toy --training.steps 10"
  check "ten steps in f32 as on the CPU" 40 bash -c 'gpu_and_processor f32 1e-4'
  check "ten steps in bf16 as on the CPU" 40 bash -c 'gpu_and_processor bf16 1e-2'
}

step_bench() {
  local figures="ms per step | tokens/s | Tflop/s | of $peak Tflop/s | memory | PyTorch | goal"
  section "Steps" "| model | $figures | times PyTorch, goal 1.1 |"
  if ((rehearse)); then
    row "toy" 45 "--model.layers 1 --model.hidden 32 --model.heads 2 --model.vocab 256
      --data.tokenizer bytes --data.synthetic 100KB --training.seq_len 32
      --training.global_batch 2" \
      "--layers 1 --hidden 32 --heads 2 --vocab 256 --batch 2 --seq 32"
  else
    row "GPT-2 124M, 32 x 1,024" 45 "--training.seq_len 1024 --training.global_batch 32" \
      "--layers 12 --hidden 768 --heads 12 --batch 32 --seq 1024"
    row "GPT-2 1.5B, 16 x 1,024" 55 \
      "--model.layers 48 --model.hidden 1600 --model.heads 25 --training.seq_len 1024
       --training.global_batch 16" \
      "--layers 48 --hidden 1600 --heads 25 --batch 16 --seq 1024"
    local llama="--hidden 4096 --heads 32 --kv-heads 8 --ffn 14336"
    row "Llama 8B shape, 16 layers, 2 x 4,096" 60 \
      "--model.family llama --model.layers 16 --model.hidden 4096 --model.heads 32
       --model.kv_heads 8 --model.ffn 14336 --model.tied false --training.seq_len 4096
       --training.global_batch 2" \
      "--family llama --layers 16 $llama --batch 2 --seq 4096"
  fi
  {
    echo
    echo "bf16, ten iterations, the mean of the last eight; flops count the causal half. PyTorch is"
    echo "compiled and timed in the same run of this script."
  } >>"$result"
  section "Generation" "| check | outcome | seconds |"
  local generated="gpt2-124m bf16 128 cuda"
  ((rehearse)) && generated="tiny bf16 2 cuda"
  # shellcheck disable=SC2086
  check "generation, goal: a share of 80 %" 75 "$generate_bench" $generated
  show "generation, goal: a share of 80 %"
}

step_runs() {
  section "Runs" "| check | outcome | seconds |"
  export run_keys="$toy $few"
  local grids="1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1 1,1,1,2 2,2,1,1 2,1,2,1
    1,2,1,2 2,2,2,1 2,1,2,2 4,1,2,1"
  local grid_steps=5 grid_dtypes="f32 bf16" limit=40 dtype
  ((rehearse)) && grids="1,1,1,1 2,1,2,1" grid_steps=2
  check "exchange between GPUs, and NCCL's watchdog on two" $limit "$comm_test"
  check "the same run twice, to the bit" $limit bash -c repetition
  for dtype in $grid_dtypes; do
    check "grids of up to eight ranks on one GPU, $dtype" $((limit + 20)) "$axonn" check \
      configs/tiny.toml --parallelism.device cuda --grids "$grids" --steps $grid_steps \
      --training.dtype "$dtype"
  done
  check "a resumed run, to the bit" $limit bash -c resumption
  check "with and without overlap, to the bit" $limit bash -c overlap
  check "with and without graphs, to the bit" $((limit + 10)) bash -c graphs
  ((rehearse)) && return
  section "Attention" "| shape | kernels | forward, us | Tflop/s | backward, us | Tflop/s |"
  echo "== attention"
  timeout -k 5 75 "$attention_bench" >>"$result" || failures=$((failures + 1))
  echo $'\nbf16, causal; flops count the causal half of each document.' >>"$result"
  section "Graphs" "| model, ms per step | without graphs | with graphs |"
  graph_row "GPT-2 124M, 2 x 1,024" "--training.seq_len 1024 --training.global_batch 2"
  graph_row "GPT-2 124M, 8 x 256 in 4 micro-batches" \
    "--training.seq_len 256 --training.global_batch 8 --training.micro_batch 2"
}

for step in $all_steps; do
  [[ " $steps " != *" $step "* ]] || "step_$step"
done

echo
cat "$result"
((failures == 0)) || echo "$failures failed"
((failures == 0))
