#!/bin/bash
# sbsa-check.sh: compiles the GPU backend for hosts of 64-bit ARM with NVIDIA GPUs, as GH200 and
# GB200, by nvcc and the cross compiler: objects, which are not linked. Exits with 77, and the
# reason, if a compiler or Debian's packages for arm64 are missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() {
  echo "skipped: $*"
  exit 77
}

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[[ -x $nvcc ]] || skip "nvcc was not found"
scripts/install-packages.sh g++-aarch64-linux-gnu || skip "no cross compiler"
sysroot=$(scripts/arm64-sysroot.sh) || skip "no packages for arm64"
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# As axonn_gpu_headers() of cmake/gpu.cmake writes them.
for header in compute/tensor/gpu/api compute/ops/gpu/matmul/blas compute/ops/gpu/warp; do
  mkdir -p "$work/axonn/${header%/*}"
  echo "#include \"axonn/${header}_cuda.cuh\"" >"$work/axonn/$header.cuh"
done
common=(-std=c++20 -O1 -I"$work" -I"$PWD" -DFMT_SHARED -c)
warnings=(-Wall -Wextra -Wno-missing-field-initializers -Wno-psabi -Werror)
for_host=$(printf ',%s' "--sysroot=$sysroot" "${warnings[@]}")
# Device code as PTX of the GPUs of GH200 and GB200.
gpus=()
for gpu in 90a 100; do gpus+=("--generate-code=arch=compute_$gpu,code=compute_$gpu"); done
compile() {
  local object=$work/${1//\//_}.o
  if [[ $1 == *.cu ]]; then
    "$nvcc" -ccbin aarch64-linux-gnu-g++ -isystem="$cuda" -Xcompiler="${for_host#,}" \
      -Werror all-warnings --expt-relaxed-constexpr --extended-lambda "${gpus[@]}" "${common[@]}" \
      -o "$object" "$1"
  else
    aarch64-linux-gnu-g++ --sysroot="$sysroot" "${warnings[@]}" -isystem "$cuda" \
      "${common[@]}" -o "$object" "$1"
  fi && file -b "$object" | grep -q aarch64 && echo "compiled $1"
}

cd axonn
sources=(compute/ops/gpu/{cuda_backend.cu,attention/*.cu,matmul/*.cpp}
  compute/tensor/gpu/{cuda_device,platform_cuda}.cpp
  ranks/comm/device/{nccl.cpp,peer_kernels.cu})
[[ ! -e $cuda/cudnn_graph.h ]] || sources+=(compute/ops/gpu/attention/cudnn_*.cpp)
status=0
for source in "${sources[@]}"; do
  (($(jobs -rp | wc -l) < $(nproc))) || wait -n || status=1
  compile "$source" &
done
for _ in "${sources[@]}"; do wait -n || { (($? == 127)) || status=1; }; done
exit $status
