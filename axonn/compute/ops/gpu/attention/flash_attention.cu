#include "axonn/compute/ops/gpu/attention/flash_attention.cuh"
#include "axonn/compute/ops/gpu/attention/flash_backward.cuh"
#include "axonn/compute/ops/gpu/attention/flash_forward.cuh"
#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/rowwise/heads.h"

namespace axonn::cuda {

namespace {

/// The tiles with the most keys first, so that none of them is left for the end.
__device__ FlashOffset place_from_the_end() {
  return {static_cast<int>(gridDim.x - 1 - blockIdx.x), static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.z)};
}

template <int D>
__global__ void __launch_bounds__(FlashForwardShape<D>::kThreads)
    run_forward(const FlashOperands args) {
  AXONN_SHARED_OF_LAUNCH(memory, FlashForwardMemory<D>);
  flash_forward<D>(args, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(FlashQueryShape<D>::kThreads)
    run_backward_queries(const FlashOperands args, const FlashGradients gradients) {
  AXONN_SHARED_OF_LAUNCH(memory, FlashBackwardQueriesMemory<D>);
  flash_backward_queries<D>(args, gradients, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(FlashKeyShape<D>::kThreads)
    run_backward_keys(const FlashOperands args, const FlashGradients gradients) {
  AXONN_SHARED_OF_LAUNCH(memory, FlashBackwardKeysMemory<D>);
  const FlashOffset at{static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                       static_cast<int>(blockIdx.z)};  // most queries see the first keys
  flash_backward_keys<D>(args, gradients, at, memory);
}

/// Launches a block for each part of a sequence's rows, head and sequence.
template <typename Shape, typename Memory, typename... Parameters>
void launch_parts(const Launch& launch, const Attention& of, std::int64_t rows, std::int64_t heads,
                  void (*kernel)(Parameters...), const Parameters&... args) {
  const dim3 blocks(static_cast<unsigned>(tiles_of(rows, Shape::kRows)),
                    static_cast<unsigned>(heads), static_cast<unsigned>(of.sequences()));
  launch_kernel(launch.stream, blocks, {Shape::kThreads, sizeof(Memory)}, kernel, args...);
}

/// Calls f with the width of a head as a constant, 64 or 128.
void with_width(std::int64_t head_dim, auto f) {
  if (head_dim == 64)
    f(std::integral_constant<int, 64>());
  else
    f(std::integral_constant<int, 128>());
}

}  // namespace

void flash_attention(const Launch& launch, const Attention& args) {
  with_width(args.head_dim, [&]<int D>(std::integral_constant<int, D>) {
    launch_parts<FlashForwardShape<D>, FlashForwardMemory<D>>(
        launch, args, args.queries(), args.heads, run_forward<D>, FlashOperands(args));
  });
}

void flash_attention_backward(const Launch& launch, const AttentionBackward& args) {
  const Attention& forward = args.forward;
  const std::int64_t rows = forward.q.rows, heads = forward.heads, width = forward.head_dim;
  float* delta = launch.scratch.take<float>(rows * heads);
  const FlashOperands operands(forward);
  const FlashGradients gradients(args, {delta, heads});
  launch.heads(
      {rows, heads, width},
      rowwise::HeadDots<bf16>{{delta, heads}, args.d_out, forward.out, static_cast<int>(width)});
  with_width(width, [&]<int D>(std::integral_constant<int, D>) {
    if (heads > 0)
      launch_parts<FlashQueryShape<D>, FlashBackwardQueriesMemory<D>>(
          launch, forward, forward.queries(), heads, run_backward_queries<D>, operands, gradients);
    launch_parts<FlashKeyShape<D>, FlashBackwardKeysMemory<D>>(
        launch, forward, forward.positions, forward.k.cols / D, run_backward_keys<D>, operands,
        gradients);
  });
}

}  // namespace axonn::cuda
