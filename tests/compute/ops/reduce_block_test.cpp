// The reduction over a GPU's block, run by CPU threads that emulate it, with the warps of NVIDIA
// GPUs and with the wavefronts of AMD GPUs.
#include "axonn/compute/ops/gpu/reduce_block.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/emulated_block.h"

using namespace axonn;
using testing::Each;
using testing_support::EmulatedBlock;

namespace {

/// The results of all threads, of two reductions that use the same memory; thread i has values[i].
template <int lanes, typename T, typename Op>
std::vector<T> reduced(const std::vector<T>& values, Op op) {
  const std::size_t threads = values.size();
  std::vector<T> results(2 * threads), parts(threads / lanes);
  EmulatedBlock(static_cast<int>(threads), lanes).run([&](const EmulatedBlock::Thread& thread) {
    const int i = thread.thread();
    results[i] = cuda::reduce_block<lanes>(thread, parts.data(), values[i], op);
    results[threads + i] = cuda::reduce_block<lanes>(thread, parts.data(), values[i], op);
  });
  return results;
}

template <int lanes>
void check_every_block() {
  const auto add = [](auto a, auto b) { return a + b; };
  const auto larger = [](auto a, auto b) { return a > b ? a : b; };
  for (int threads = lanes; threads <= 512; threads += lanes) {
    SCOPED_TRACE(testing::Message() << threads << " threads, warps of " << lanes);
    std::vector<std::int64_t> bits(threads);  // shows any value that is added twice or not at all
    for (int i = 0; i < threads; ++i) bits[i] = std::int64_t{1} << (i % 48);
    const std::int64_t total = std::accumulate(bits.begin(), bits.end(), std::int64_t{0});
    EXPECT_THAT((reduced<lanes>(bits, add)), Each(total));

    std::vector<float> floats(threads);
    std::iota(floats.begin(), floats.end(), 1.0f);
    EXPECT_THAT((reduced<lanes>(floats, larger)), Each(static_cast<float>(threads)));
    std::vector<double> doubles(floats.begin(), floats.end());
    EXPECT_THAT((reduced<lanes>(doubles, add)), Each(threads * (threads + 1) / 2.0));
  }
}

}  // namespace

TEST(ReduceBlock, GivesEveryThreadTheSumAndTheLargestInWarpsOf32) { check_every_block<32>(); }

TEST(ReduceBlock, GivesEveryThreadTheSumAndTheLargestInWavefrontsOf64) { check_every_block<64>(); }

TEST(ReduceBlock, EveryThreadGetsTheSameBitsWhereTheOrderMatters) {
  std::vector<float> values(256);
  for (int i = 0; i < 256; ++i) values[i] = 1.0f / static_cast<float>(3 * i + 1);
  const std::vector<float> sums = reduced<64>(values, [](float a, float b) { return a + b; });
  EXPECT_THAT(sums, Each(sums.front()));
}
