#!/bin/bash
# aarch64.sh [program]: cross-compiles the program and tests of operations for 64-bit ARM, and runs
# them on processors that QEMU emulates, beside the program for this machine. With "program" the
# program alone, with one set of kernels. Exits with 77, which is "skipped", and the reason if the
# cross compiler, QEMU or Debian's packages for arm64 are not to be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
skip() {
  echo "skipped: $*"
  exit 77
}

scripts/install-packages.sh g++-aarch64-linux-gnu qemu-user ||
  skip "the cross compiler (g++-aarch64-linux-gnu) or QEMU (qemu-user) cannot be installed"
sysroot=$(scripts/arm64-sysroot.sh) || skip "no packages for arm64"
scripts/build.sh dev axonn
if [[ ${1:-} == program ]]; then
  scripts/build.sh aarch64-program axonn
  exec tests/packages/aarch64.sh build/dev/bin/axonn build/aarch64-program/bin/axonn "$sysroot" \
    build/dev/tests/mpirun
fi
scripts/build.sh aarch64 axonn ops_test ops_threads_test
# Emulated arithmetic is a thousand times slower: the tests that take seconds, not minutes.
few='*Softmax*:*RmsNorm*:*Embedding*:*Optimizer*:*Rotary*:*Swiglu*:*Convert*:*Dequantize*'
few+=':*CrossEntropy*:*QuantizedMatmul*:Matmul.*Equals*:Matmul.OfFewRows*'
few+=':*Threads.ProductsInEveryMode*'
GTEST_FILTER=$few ctest --test-dir build/aarch64 -j "$(nproc)" --output-on-failure \
  --no-tests=error -R '^(ops|ops_threads)_test[.]|^packages_(aarch64|one_symbol)$'
