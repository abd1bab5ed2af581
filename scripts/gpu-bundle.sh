#!/bin/bash
# Packs all that scripts/gpu-check.sh needs into build/gpu-bundle.tar.xz, for a GPU machine without
# the build dependencies: the programs, built without MPI for any processor with AVX2, and the
# libraries that they need, except for the C library and CUDA's. On the GPU machine, in the source
# tree:
#
#   tar -xf build/gpu-bundle.tar.xz && scripts/gpu-check.sh
#
# That machine must have CUDA's libraries (cuBLASLt, cuDNN, NVRTC, NCCL) of the same major version,
# and a C library at least as new as that of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset cuda -DAXONN_BENCH=ON >/dev/null
scripts/build.sh cuda axonn ops_cuda_test comm_cuda_test bench_ops_attention_cuda
bundle=build/gpu-bundle
rm -rf "$bundle"
mkdir -p "$bundle/lib"
cp build/cuda/bin/axonn build/cuda/tests/ops/ops_cuda_test build/cuda/tests/comm/comm_cuda_test \
  build/cuda/bench/bench_ops_attention_cuda "$bundle"
strip "$bundle/axonn" "$bundle/ops_cuda_test" "$bundle/comm_cuda_test" \
  "$bundle/bench_ops_attention_cuda"

# Leaves out the system's libraries, and CUDA's, which are large and belong to the driver there.
ldd "$bundle/axonn" "$bundle/ops_cuda_test" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so|/libcu|/libnccl' |
  xargs -I{} cp -L {} "$bundle/lib"
tar -cJf "$bundle.tar.xz" "$bundle"
du -h "$bundle.tar.xz"
