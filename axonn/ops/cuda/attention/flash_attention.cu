#include "axonn/base/check.h"
#include "axonn/ops/cuda/attention/attention_graph.h"
#include "axonn/ops/cuda/attention/flash_attention.cuh"
#include "axonn/ops/cuda/attention/flash_attention.h"
#include "axonn/ops/cuda/attention/flash_backward.h"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/rowwise/head_dots.h"

namespace axonn::cuda {

namespace {

/// A block of a GPU's threads, with the interface of flash_tiles.h.
struct GpuBlock {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ float shuffle_xor(float x, int mask) const { return cuda::shuffle_xor(x, mask); }
  __device__ void mma(float (&c)[4], const std::uint32_t (&a)[4],
                      const std::uint32_t (&b)[2]) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  __device__ void load_down(std::uint32_t (&b)[2], const bf16* row) const {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(address)
                 : "memory");
  }
};

/// The tiles with the most keys first, so that none of them is left for the end.
__device__ FlashPlace place_from_the_end() {
  return {static_cast<int>(gridDim.x - 1 - blockIdx.x), static_cast<int>(blockIdx.y),
          static_cast<int>(blockIdx.z)};
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads) run_forward(const FlashOperands args) {
  __shared__ FlashForwardMemory<D> memory;
  flash_forward<D>(GpuBlock{}, args, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads)
    run_backward_queries(const FlashOperands args, const FlashGradients gradients) {
  __shared__ FlashForwardMemory<D> memory;
  flash_backward_queries<D>(GpuBlock{}, args, gradients, place_from_the_end(), memory);
}

template <int D>
__global__ void __launch_bounds__(kFlashThreads)
    run_backward_keys(const FlashOperands args, const FlashGradients gradients) {
  __shared__ FlashKeysMemory<D> memory;
  const FlashPlace at{static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y),
                      static_cast<int>(blockIdx.z)};  // most queries see the first keys
  flash_backward_keys<D>(GpuBlock{}, args, gradients, at, memory);
}

FlashOperands operands_of(const Attention& args) {
  return {.q = args.q.as<const bf16>(),
          .k = args.k.as<const bf16>(),
          .v = args.v.as<const bf16>(),
          .out = args.out.as<bf16>(),
          .stats = args.stats.as<float>(),
          .q_stride = args.q.stride,
          .k_stride = args.k.stride,
          .v_stride = args.v.stride,
          .out_stride = args.out.stride,
          .stats_stride = args.stats.stride,
          .starts = args.starts.as<const std::int32_t>(),
          .T = static_cast<int>(args.positions),
          .group = static_cast<int>(args.group),
          .first_query = static_cast<int>(args.first_query),
          .window = static_cast<int>(args.window),
          .scale = args.scale};
}

/// One block for each tile of positions, head and sequence.
dim3 grid_for(const Attention& args, std::int64_t heads) {
  return {static_cast<unsigned>(tiles_of(args.positions, kFlashRows)), static_cast<unsigned>(heads),
          static_cast<unsigned>(args.q.rows / args.positions)};
}

/// Calls f with the width of a head as a constant, 64 or 128.
template <typename F>
void with_width(std::int64_t head_dim, F f) {
  if (head_dim == 64)
    f(std::integral_constant<int, 64>());
  else
    f(std::integral_constant<int, 128>());
}

}  // namespace

bool flash_fits(const Attention& args) {
  constexpr std::int64_t kMostBlocks = 65535;  // of a grid's second and third dimension
  return (args.head_dim == 64 || args.head_dim == 128) && is_aligned_bf16(args.q) &&
         is_aligned_bf16(args.k) && is_aligned_bf16(args.v) && is_aligned_bf16(args.out) &&
         args.heads <= kMostBlocks && args.q.rows / args.positions <= kMostBlocks;
}

bool flash_fits(const AttentionBackward& args) {
  return flash_fits(args.forward) && is_aligned_bf16(args.d_out) && is_aligned_bf16(args.d_q) &&
         is_aligned_bf16(args.d_k) && is_aligned_bf16(args.d_v);
}

void flash_attention(cudaStream_t stream, const Attention& args) {
  with_width(args.head_dim, [&]<int D>(std::integral_constant<int, D>) {
    run_forward<D><<<grid_for(args, args.heads), kFlashThreads, 0, stream>>>(operands_of(args));
  });
  check(cudaGetLastError());
}

void flash_attention_backward(cudaStream_t stream, const AttentionBackward& args, float* delta) {
  const Attention& forward = args.forward;
  const std::int64_t D = forward.head_dim;
  const FlashOperands operands = operands_of(forward);
  const FlashGradients gradients{.d_out = args.d_out.as<const bf16>(),
                                 .d_q = args.d_q.as<bf16>(),
                                 .d_k = args.d_k.as<bf16>(),
                                 .d_v = args.d_v.as<bf16>(),
                                 .delta = delta,
                                 .d_out_stride = args.d_out.stride,
                                 .d_q_stride = args.d_q.stride,
                                 .d_k_stride = args.d_k.stride,
                                 .d_v_stride = args.d_v.stride,
                                 .heads = static_cast<int>(forward.heads)};
  launch_rows(
      stream, forward.q.rows, D,
      rowwise::HeadDots<bf16>{
          {delta, forward.heads}, args.d_out, forward.out, gradients.heads, static_cast<int>(D)});
  with_width(D, [&]<int width>(std::integral_constant<int, width>) {
    if (forward.heads > 0)
      run_backward_queries<width>
          <<<grid_for(forward, forward.heads), kFlashThreads, 0, stream>>>(operands, gradients);
    run_backward_keys<width>
        <<<grid_for(forward, forward.k.cols / D), kFlashThreads, 0, stream>>>(operands, gradients);
  });
  check(cudaGetLastError());
}

}  // namespace axonn::cuda
