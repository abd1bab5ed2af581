// Attention on a GPU by products, whose scores are computed in pieces.
#include <gtest/gtest.h>

#include "tests/compute/ops/attention_case.h"
#include "tests/compute/ops/on_cuda.h"

using namespace axonn;

TEST(AttentionPieces, EqualPlainLoopsHoweverFewBytesTheyHave) {
  for (const std::int64_t bytes : {1, 5'000, 60'000, 1 << 30}) {
    const auto backend =
        test_cuda_backend({.attention = CudaAttention::own, .attention_bytes = bytes});
    for (const DType type : kModelTypes) {
      check_attention_case(*backend, {2, {70, 4, 2, 8, 2, 0, 0.1}, type});
      check_attention_case(*backend, {1, {70, 3, 3, 8, 1, 0, 0.1, 20}, type});
    }
  }
}
