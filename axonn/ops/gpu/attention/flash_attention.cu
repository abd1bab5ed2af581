#include "axonn/ops/gpu/attention/flash_attention.cuh"
#include "axonn/ops/gpu/attention/flash_kernels.cuh"
#include "axonn/ops/gpu/launch.cuh"
#include "axonn/ops/rowwise/heads.h"

namespace axonn::cuda {

namespace {

/// The tiles with the most keys first, so that none of them is left for the end.
__device__ FlashOffset place_from_the_end() {
  return {static_cast<int>(gridDim.x - 1 - blockIdx.x), static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.z)};
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads) run_forward(const FlashOperands args) {
  AXONN_SHARED(memory, FlashForwardMemory<D>);
  flash_forward<D>(args, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads)
    run_backward_queries(const FlashOperands args, const FlashGradients gradients) {
  AXONN_SHARED(memory, FlashForwardMemory<D>);
  flash_backward_queries<D>(args, gradients, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads)
    run_backward_keys(const FlashOperands args, const FlashGradients gradients) {
  AXONN_SHARED(memory, FlashKeysMemory<D>);
  const FlashOffset at{static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                       static_cast<int>(blockIdx.z)};  // most queries see the first keys
  flash_backward_keys<D>(args, gradients, at, memory);
}

/// One block for each tile of a sequence's rows, head and sequence.
dim3 grid_for(const Attention& args, std::int64_t rows, std::int64_t heads) {
  return {static_cast<unsigned>(tiles_of(rows, kFlashRows)), static_cast<unsigned>(heads),
          static_cast<unsigned>(args.sequences())};
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
    launch_kernel(launch.stream, grid_for(args, args.queries(), args.heads), kFlashThreads,
                  run_forward<D>, FlashOperands(args));
  });
}

void flash_attention_backward(const Launch& launch, const AttentionBackward& args) {
  const Attention& forward = args.forward;
  const std::int64_t rows = forward.q.rows, heads = forward.heads, D = forward.head_dim;
  float* delta = launch.scratch.take<float>(rows * heads);
  const FlashOperands operands(forward);
  const FlashGradients gradients(args, {delta, heads});
  launch.rows({rows, D}, rowwise::HeadDots<bf16>{
                             {delta, heads}, args.d_out, forward.out, heads, static_cast<int>(D)});
  with_width(D, [&]<int width>(std::integral_constant<int, width>) {
    if (heads > 0)
      launch_kernel(launch.stream, grid_for(forward, forward.queries(), heads), kFlashThreads,
                    run_backward_queries<width>, operands, gradients);
    launch_kernel(launch.stream, grid_for(forward, forward.positions, forward.k.cols / D),
                  kFlashThreads, run_backward_keys<width>, operands, gradients);
  });
}

}  // namespace axonn::cuda
