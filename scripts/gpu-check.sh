#!/bin/bash
# Tests and times this machine's GPU in under ten minutes. Builds for it (or uses the programs that
# scripts/gpu-bundle.sh packed) and runs the tests of operations. Compares grids of up to eight
# ranks that share the GPU, the GPU with the CPU, and a run with a repeated run, a resumed run and a
# run without overlap. Times attention, and training steps next to PyTorch's. Writes
# bench/results/DATE-CARD.md, and exits with 1 if anything failed.
#
#   scripts/gpu-check.sh [--no-bench]
set -uo pipefail
cd "$(dirname "$0")/.."
bench=1
[[ ${1:-} == --no-bench ]] && bench=0

fail_at_once() {
  echo "error: $1" >&2
  exit 1
}

command -v nvidia-smi >/dev/null || fail_at_once "no nvidia-smi: run this where an NVIDIA GPU is"
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
arch=$capability-real
[[ $capability == 90 ]] && arch=90a-real

# The programs: packed, or built here.
if [[ -x build/gpu-bundle/axonn ]]; then
  axonn=$PWD/build/gpu-bundle/axonn
  ops_test=$PWD/build/gpu-bundle/ops_cuda_test
  attention_bench=$PWD/build/gpu-bundle/bench_ops_attention_cuda
  comm_test=$PWD/build/gpu-bundle/comm_cuda_test
  # CUDA's libraries: those of PyTorch, if the toolkit is missing.
  cuda_libraries=$(python3 - <<'PY' 2>/dev/null
import glob, os, site
roots = site.getsitepackages() + [site.getusersitepackages()]
print(":".join(sorted({os.path.dirname(f) for root in roots
                       for f in glob.glob(root + "/nvidia/**/lib*.so*", recursive=True)})))
PY
)
  LD_LIBRARY_PATH=$PWD/build/gpu-bundle/lib:/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH+=:$cuda_libraries
  missing=$(ldd "$axonn" "$ops_test" | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
  [[ -z $missing ]] || fail_at_once "this machine lacks libraries of the packed programs: $missing"
else
  instead="use build/gpu-bundle.tar.xz of scripts/gpu-bundle.sh instead"
  for tool in nvcc cmake g++; do
    command -v $tool >/dev/null ||
      fail_at_once "$tool was not found: install it, or $instead"
  done
  mkdir -p build/cuda
  cmake --preset cuda -DAXONN_CUDA_ARCH="$arch" -DAXONN_BENCH=ON \
    >build/cuda/configure.log 2>&1 || {
    grep -A3 "CMake Error" build/cuda/configure.log >&2
    fail_at_once "configuring failed (scripts/install-packages.sh --tests lists packages); $instead"
  }
  cmake --build --preset cuda --parallel "$(nproc)" --target axonn ops_cuda_test comm_cuda_test \
    bench_ops_attention_cuda || fail_at_once "the build failed"
  axonn=$PWD/build/cuda/bin/axonn
  ops_test=$PWD/build/cuda/tests/ops/ops_cuda_test
  comm_test=$PWD/build/cuda/tests/comm/comm_cuda_test
  attention_bench=$PWD/build/cuda/bench/bench_ops_attention_cuda
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
result=bench/results/$(date +%F)-$(tr -cs '[:alnum:]' - <<<"${gpu,,}" | sed 's/-$//').md
failures=0

{
  echo "# $gpu"
  echo
  echo '```'
  "$axonn" info
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv
  echo '```'
  echo
  echo "## Checks"
  echo
  echo "| check | outcome | seconds |"
  echo "| --- | --- | --- |"
} >"$result"

# check NAME SECONDS COMMAND...: records whether the command succeeds within that time; if not,
# prints the end of its output.
check() {
  local name=$1 limit=$2 begin=$SECONDS outcome=passed log
  shift 2
  log=$work/$(tr -cs '[:alnum:]' - <<<"$name").log
  echo "== $name"
  if ! timeout "$limit" "$@" >"$log" 2>&1; then
    outcome="**FAILED**"
    failures=$((failures + 1))
    tail -n 40 "$log"
  else
    tail -n 3 "$log"
  fi
  echo "| $name | $outcome | $((SECONDS - begin)) |" >>"$result"
}

# train DIR KEYS...: a short run on the GPU; its metrics are in DIR.
train() {
  local dir=$work/$1
  shift
  "$axonn" train configs/tiny.toml --output.dir "$dir" --parallelism.device cuda \
    --training.eval_every 0 "$@"
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
  train whole --checkpoint.every 25 &&
    train parts --checkpoint.every 25 &&
    rm -r "$work/parts/checkpoints/step-50" "$work/parts/checkpoints/latest" &&
    train parts --checkpoint.resume "$work/parts/checkpoints/step-25" && same_losses whole parts
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
export axonn work
export -f train column same_losses close_losses gpu_and_processor repetition resumption overlap
export -f graphs

grids="1,1,1,1 2,1,1,1 1,2,1,1 1,1,2,1 1,1,1,2 2,2,1,1 2,1,2,1 1,2,1,2 2,2,2,1 2,1,2,2 4,1,2,1"
on_grids=("$axonn" check configs/tiny.toml --parallelism.device cuda --grids "$grids" --steps 5)
check "operations against the reference" 200 "$ops_test"
check "exchange between GPUs, and NCCL's watchdog on two" 60 "$comm_test"
check "one rank in f32 as on the CPU" 60 bash -c 'gpu_and_processor f32 1e-4'
check "one rank in bf16 as on the CPU" 60 bash -c 'gpu_and_processor bf16 1e-2'
check "the same run twice, to the bit" 60 bash -c repetition
check "grids of up to eight ranks on one GPU, f32" 90 "${on_grids[@]}"
check "grids of up to eight ranks on one GPU, bf16" 90 "${on_grids[@]}" --training.dtype bf16
check "a resumed run, to the bit" 60 bash -c resumption
check "with and without overlap, to the bit" 60 bash -c overlap
check "with and without graphs, to the bit" 90 bash -c graphs

# figure FILE KEY: prints a number of the JSON that bench wrote.
figure() { sed -nE "s/.*\"$2\": ?([-+.0-9e]+).*/\1/p" "$1" | head -n 1; }

# row NAME "AXONN'S KEYS" "PYTORCH'S FLAGS": adds a line to the table of steps.
row() {
  local json=$work/bench.json torch
  echo "== $1"
  rm -f "$json"
  # shellcheck disable=SC2086
  timeout 90 "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda --json "$json" \
    --parallelism.peak_tflops 989 --output.dir "$work/bench" $2 2>&1 | tail -n 12
  # shellcheck disable=SC2086
  torch=$(timeout 90 python3 bench/torch_cuda.py $3 2>&1 | tail -n 1)
  echo "PyTorch: $torch"
  if [[ ! -f $json ]]; then
    echo "| $1 | failed | | | | | $torch |" >>"$result"
    failures=$((failures + 1))
    return
  fi
  awk -v name="$1" -v s="$(figure "$json" step_s)" -v t="$(figure "$json" tokens_per_s)" \
    -v f="$(figure "$json" model_tflops)" -v p="$(figure "$json" percent_of_product_peak)" \
    -v m="$(figure "$json" memory_bytes)" -v torch="$torch" 'BEGIN {
      printf "| %s | %.1f | %.0f | %.0f | %.0f %% | %.1f GiB | %s |\n",
             name, s * 1e3, t, f, p, m / 2^30, torch}' >>"$result"
}

# bench_step_ms "AXONN'S KEYS": prints milliseconds per step; nothing if it fails.
bench_step_ms() {
  local json=$work/graphs.json
  rm -f "$json"
  # shellcheck disable=SC2086
  timeout 60 "$axonn" bench configs/gpt2-124m.toml --parallelism.device cuda --json "$json" \
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

if ((bench)); then
  {
    echo
    echo "## Attention"
    echo
    echo "bf16, causal; flops count the causal half of each document. axonn's own kernels are"
    echo "deterministic."
    echo
    echo "| shape | kernels | forward, us | Tflop/s | backward, us | Tflop/s |"
    echo "| --- | --- | --- | --- | --- | --- |"
  } >>"$result"
  echo "== attention"
  timeout 120 "$attention_bench" >>"$result" || failures=$((failures + 1))
  {
    echo
    echo "## Steps"
    echo
    echo "bf16, ten iterations, the mean of the last eight; flops count the causal half. PyTorch is"
    echo "compiled and timed in the same run of this script."
    echo
    echo "| model | ms per step | tokens/s | Tflop/s | of product peak | memory | PyTorch |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
  } >>"$result"
  row "GPT-2 124M, 32 x 1,024" "--training.seq_len 1024 --training.global_batch 32" \
    "--layers 12 --hidden 768 --heads 12 --batch 32 --seq 1024"
  row "GPT-2 1.5B, 16 x 1,024" \
    "--model.layers 48 --model.hidden 1600 --model.heads 25 --training.seq_len 1024
     --training.global_batch 16" \
    "--layers 48 --hidden 1600 --heads 25 --batch 16 --seq 1024"
  llama="--hidden 4096 --heads 32 --kv-heads 8 --ffn 14336"
  row "Llama 8B shape, 16 layers, 2 x 4,096" \
    "--model.family llama --model.layers 16 --model.hidden 4096 --model.heads 32
     --model.kv_heads 8 --model.ffn 14336 --model.tied false --training.seq_len 4096
     --training.global_batch 2" \
    "--family llama --layers 16 $llama --batch 2 --seq 4096"
  {
    echo
    echo "## Graphs"
    echo
    echo "Milliseconds per step, bf16, ten iterations, the mean of the last eight."
    echo
    echo "| model | without graphs | with graphs |"
    echo "| --- | --- | --- |"
  } >>"$result"
  graph_row "GPT-2 124M, 32 x 1,024" "--training.seq_len 1024 --training.global_batch 32"
  graph_row "GPT-2 124M, 2 x 1,024" "--training.seq_len 1024 --training.global_batch 2"
  graph_row "GPT-2 124M, 8 x 256 in 4 micro-batches" \
    "--training.seq_len 256 --training.global_batch 8 --training.micro_batch 2"
fi

echo
cat "$result"
((failures == 0)) || echo "$failures failed"
((failures == 0))
