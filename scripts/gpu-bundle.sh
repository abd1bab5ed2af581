#!/bin/bash
# Packs all that scripts/gpu-check.sh needs into build/gpu-bundle.tar.xz, for a GPU machine without
# the build dependencies: the programs, built without MPI for any processor with AVX2, and the
# libraries that they need, except for the C library and CUDA's, which only they see. On the GPU
# machine, in the source tree:
#
#   tar -xf build/gpu-bundle.tar.xz && scripts/gpu-check.sh
#
# The archive should stay below 48 MiB: some machines take no more than 64 MiB with the sources; the
# script warns.
#
# That machine must have CUDA's libraries (cuBLASLt, cuDNN, NVRTC, NCCL) of the same major version,
# and a C library at least as new as that of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

# Nothing in the check reads text of others or serves requests.
cmake --preset cuda -DAXONN_BENCH=ON -DAXONN_ICU=OFF -DAXONN_SENTENCEPIECE=OFF \
  -DAXONN_HTTP=OFF -DAXONN_BLAS=OFF >/dev/null
programs=(bin/axonn tests/compute/ops/ops_cuda_test tests/ranks/comm/comm_cuda_test
          bench/bench_ops_attention_cuda bench/bench_generate)
scripts/build.sh cuda "${programs[@]##*/}"
bundle=build/gpu-bundle
rm -rf "$bundle"
mkdir -p "$bundle/lib"
for program in "${programs[@]}"; do
  cp "build/cuda/$program" "$bundle"
  strip "$bundle/${program##*/}"
  # shellcheck disable=SC2016
  patchelf --set-rpath '$ORIGIN/lib' "$bundle/${program##*/}"
done

# compute-sanitizer of the toolkit here, if it has one; the one there comes first.
sanitizer=$(dirname "$(readlink -f "$(command -v nvcc)")")/../compute-sanitizer
[[ ! -x $sanitizer/compute-sanitizer ]] || cp -rL "$sanitizer" "$bundle/compute-sanitizer"

# Leaves out the system's libraries, and CUDA's, which are large and belong to the driver there.
ldd "${programs[@]/#/build/cuda/}" | awk '$2 == "=>" {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so|/libcu|/libnccl' |
  xargs -I{} cp -L {} "$bundle/lib"
# Each library finds the others beside it.
# shellcheck disable=SC2016
find "$bundle/lib" -type f -exec patchelf --set-rpath '$ORIGIN' {} +
tar -cJf "$bundle.tar.xz" "$bundle"
du -h "$bundle" "$bundle.tar.xz"
(($(stat -c %s "$bundle.tar.xz") < 48 << 20)) || echo "warning: more than 48 MiB" >&2
