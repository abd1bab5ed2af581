// The GPU's attention kernels, run by CPU threads that emulate a GPU's block.
#include <limits>

#include <gtest/gtest.h>

#include "axonn/ops/cuda/attention/flash_kernels.h"
#include "axonn/ops/forwarding_backend.h"

#include "tests/ops/attention_case.h"
#include "tests/support/emulated_block.h"

using namespace axonn;
using testing_support::EmulatedBlock;

namespace {

template <int D>
class FlashBackend final : public ForwardingBackend {
 public:
  FlashBackend() : ForwardingBackend(nullptr) {}  // no other operation is called

  void attention(const Attention& args) override {
    for_places(args, args.heads, [&](cuda::FlashPlace at) {
      cuda::FlashForwardMemory<D> memory;
      EmulatedBlock(cuda::kFlashThreads).run([&](const EmulatedBlock::Thread& thread) {
        cuda::flash_forward<D>(thread, cuda::FlashOperands(args), at, memory);
      });
    });
  }

  void attention_backward(const AttentionBackward& args) override {
    const Attention& forward = args.forward;
    const std::vector<float> delta = delta_of(args);
    const cuda::FlashGradients gradients{args.d_out,
                                         args.d_q,
                                         args.d_k,
                                         args.d_v,
                                         {delta.data(), forward.heads},
                                         static_cast<int>(forward.heads)};
    for_places(forward, forward.heads, [&](cuda::FlashPlace at) {
      cuda::FlashForwardMemory<D> memory;
      EmulatedBlock(cuda::kFlashThreads).run([&](const EmulatedBlock::Thread& thread) {
        cuda::flash_backward_queries<D>(thread, cuda::FlashOperands(forward), gradients, at,
                                        memory);
      });
    });
    for_places(forward, forward.k.cols / D, [&](cuda::FlashPlace at) {
      cuda::FlashKeysMemory<D> memory;
      EmulatedBlock(cuda::kFlashThreads).run([&](const EmulatedBlock::Thread& thread) {
        cuda::flash_backward_keys<D>(thread, cuda::FlashOperands(forward), gradients, at, memory);
      });
    });
  }

 private:
  static std::vector<float> delta_of(const AttentionBackward& args) {
    std::vector<float> delta;
    for (std::int64_t row = 0; row < args.d_out.rows; ++row)
      for (std::int64_t head = 0; head < args.forward.heads; ++head) {
        float sum = 0;
        for (std::int64_t c = head * D; c < (head + 1) * D; ++c)
          sum += get(args.d_out.row<bf16>(row)[c]) * get(args.forward.out.row<bf16>(row)[c]);
        delta.push_back(sum);
      }
    return delta;
  }

  static void for_places(const Attention& args, std::int64_t heads,
                         const std::function<void(cuda::FlashPlace)>& body) {
    const auto sequences = static_cast<int>(args.q.rows / args.positions);
    for (int sequence = 0; sequence < sequences; ++sequence)
      for (int head = 0; head < heads; ++head)
        for (int tile = 0; tile * cuda::kFlashRows < args.positions; ++tile)
          body({tile, head, sequence});
  }
};

}  // namespace

TEST(FlashAttention, EqualsPlainLoopsForAnyHeadsGroupsAndLengths) {
  FlashBackend<64> backend;
  check_attention_case(backend, {1, {1, 1, 1, 64}, DType::bf16, 8});
  check_attention_case(backend, {1, {70, 1, 1, 64, 1, 0, 0.125}, DType::bf16, 8});
  check_attention_case(backend, {2, {17, 3, 3, 64, 2, 1, 0.125}, DType::bf16, 8});
  check_attention_case(backend, {1, {130, 2, 1, 64, 2, 0, 0.125}, DType::bf16, 16});
}

TEST(FlashAttention, EqualsPlainLoopsForHeadsOf128) {
  FlashBackend<128> backend;
  check_attention_case(backend, {1, {70, 1, 1, 128, 1, 0, 0.1}, DType::bf16, 8});
}

TEST(FlashAttention, SeesOnlyTheKeysInTheWindow) {
  FlashBackend<64> backend;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t window : {std::int64_t{1}, std::int64_t{64}, std::int64_t{65},
                                    std::int64_t{100}, kLargest, 2 * kLargest + 3})
    check_attention_case(backend, {1, {140, 1, 1, 64, 1, 0, 0.125, window}, DType::bf16, 8});
}

TEST(FlashAttention, SeesOnlyTheKeysInTheDocument) {
  FlashBackend<64> backend;
  check_attention_case(
      backend, {1, {140, 1, 1, 64, 1, 0, 0.125, 0, starts_of(1, 140, {5, 64, 3})}, DType::bf16, 8});
}
