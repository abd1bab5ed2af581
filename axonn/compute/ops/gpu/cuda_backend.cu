#include <algorithm>
#include <iterator>
#include <variant>

#include "axonn/compute/ops/gpu/attention/flash_attention.cuh"
#include "axonn/compute/ops/gpu/cuda_backend.cuh"
#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/embedding.h"
#include "axonn/compute/ops/rowwise/experts.h"
#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/norm.h"
#include "axonn/compute/ops/rowwise/optimizer.h"
#include "axonn/compute/ops/rowwise/order.h"
#include "axonn/compute/ops/rowwise/reduce.h"
#include "axonn/compute/ops/rowwise/route.h"
#include "axonn/compute/ops/rowwise/softmax.h"
#include "axonn/compute/ops/rowwise/xielu.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"

namespace axonn {

namespace cuda {

namespace {

/// y += the rows of x that are listed, in their order. The values of several rows and columns are
/// under way at a time: a token may have thousands of rows, of which each waits for memory.
template <typename T>
__device__ void add_listed_rows(float* y, Matrix<const T> x, const int* rows, int count, int C) {
  constexpr int kRows = 8, kColumns = 4;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int c = thread; c < C; c += kColumns * threads) {
    float sum[kColumns], next[kRows][kColumns];
    for (int j = 0; j < kColumns; ++j) sum[j] = c + j * threads < C ? y[c + j * threads] : 0;
    for (int i = 0; i < count; i += kRows) {
      for (int k = 0; k < kRows; ++k) {
        const T* from = x.row(rows[i + k < count ? i + k : i]);
        for (int j = 0; j < kColumns; ++j)
          next[k][j] = c + j * threads < C ? get(from[c + j * threads]) : 0;
      }
      for (int k = 0; k < kRows; ++k)
        for (int j = 0; j < kColumns; ++j) sum[j] = i + k < count ? sum[j] + next[k][j] : sum[j];
    }
    for (int j = 0; j < kColumns; ++j)
      if (c + j * threads < C) y[c + j * threads] = sum[j];
  }
}

/// For each row of a table the first and the last row with its id; none: first > last.
struct IdSpans {
  int *first, *last;  // (V)
};

__global__ void clear_spans(IdSpans spans, int V, int R) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= V) return;
  spans.first[i] = R;
  spans.last[i] = -1;
}

template <typename T>
__global__ void find_spans(const rowwise::EmbeddingBackwardKernel<T> args, IdSpans spans) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= args.R) return;
  const std::int64_t at = args.ids[row] - args.first;
  if (at < 0 || at >= args.V) return;
  keep_least(spans.first + at, row);
  keep_most(spans.last + at, row);
}

/// d_table[ids[r] - first] += d_out[r], for each table row in the order of the rows r. There is one
/// block per row; the block of the first row with an id adds all rows that have this id.
///
/// Bound by memory, R · C · (sizeof(T) + 8) bytes, and by the rows of the most frequent token,
/// which one block adds.
template <typename T>
__global__ void __launch_bounds__(kMostThreads, kAtOnce)
    add_token_gradients(const rowwise::EmbeddingBackwardKernel<T> args, const IdSpans spans) {
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x),
            threads = static_cast<int>(blockDim.x);
  const std::int32_t id = args.ids[row];
  if (id < args.first || id >= args.first + args.V) return;  // the whole block
  if (spans.first[id - args.first] != row) return;
  const int end = spans.last[id - args.first] + 1;
  constexpr int kEach = 8;  // ids that a thread compares before rows are added
  AXONN_SHARED(found, Lanes[kEach * kMostThreads / kWarp]);
  AXONN_SHARED(rows, int[kEach * kMostThreads]);
  const int warps = threads / kWarp, lane = thread % kWarp;
  for (int begin = row; begin < end; begin += kEach * threads) {
    for (int k = 0; k < kEach; ++k) {
      const int r = begin + k * threads + thread;
      const Lanes here = lanes_with(r < end && args.ids[r] == id);
      if (lane == 0) found[k * warps + thread / kWarp] = here;
    }
    __syncthreads();
    int listed = 0;
    for (int i = 0; i < kEach * warps; ++i) {
      const Lanes here = found[i], below = here & ((Lanes{1} << lane) - 1);
      if (i % warps == thread / kWarp && (here >> lane & 1) != 0)
        rows[listed + count(below)] = begin + i / warps * threads + thread;
      listed += count(here);
    }
    __syncthreads();
    add_listed_rows(args.d_table.row(id - args.first), args.d_out, rows, listed, args.C);
  }
}

/// Throws if this build has no kernels for the GPU.
void check_kernels(const CudaGpu& gpu) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, add_rows);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  refuse(gpu_platform()->device, ": ", gpu.name, " is of ", gpu.architecture,
         ", for which this build has no kernels (", cudaGetErrorString(status),
         "); configure with -D", gpu.build_for);
}

}  // namespace

CudaBackend::CudaBackend(const CudaGpu& gpu, const CudaOptions& options)
    : device_(make_cuda_device(gpu.index)),
      arena_(*device_),
      gpu_name_(gpu.name),
      rules_{.options = options, .cudnn = CudnnAttention::version(), .capability = gpu.capability},
      products_(arena_),
      cudnn_(*this) {}

std::vector<std::string> CudaBackend::take_remarks() {
  std::vector<std::string> remarks = products_.take_remarks();
  std::ranges::move(std::exchange(remarks_, {}), std::back_inserter(remarks));
  return remarks;
}

void CudaBackend::attention(const Attention& args) {
  check_attention(Attention::kName, args);
  if (args.q.count() > 0) attend({.forward = args}, false, attention_offers(args, rules_));
}

void CudaBackend::attention_backward(const AttentionBackward& args) {
  check_attention_backward(args);
  if (args.forward.k.count() > 0) attend(args, true, attention_offers(args, rules_));
}

void CudaBackend::attend(const AttentionBackward& args, bool backward,
                         std::vector<AttentionOffer> offers) {
  for (AttentionOffer& offer : offers) {
    if (offer.why_not.empty()) offer.why_not = attend_in_way(offer, args, backward);
    if (!offer.why_not.empty()) continue;
    const bool expected = rules_.cudnn > 0 && rules_.options.attention != CudaAttention::own &&
                          args.forward.q.dtype == DType::bf16;
    if (expected && offer.way >= AttentionWay::own) {
      const std::string what = describe(args.forward, backward);
      if (left_by_cudnn_.insert(what).second)
        remarks_.push_back(concat("cuDNN does not compute attention of ", what, " (",
                                  offers.front().why_not, "): axonn's own kernels do"));
    }
    return;
  }
  best_offer(offers, describe(args.forward, backward));  // throws
}

std::string CudaBackend::attend_in_way(const AttentionOffer& offer, const AttentionBackward& args,
                                       bool backward) {
  Scratch scratch(arena_);
  const Launch launch{stream(), scratch};
  const Attention& forward = args.forward;
  switch (offer.way) {
    case AttentionWay::cudnn:
    case AttentionWay::cudnn_ordered:
      return cudnn_.run(args, offer, rules_.options.attention_bytes);
    case AttentionWay::own:
      backward ? flash_attention_backward(launch, args) : flash_attention(launch, forward);
      return {};
    case AttentionWay::parts: {
      const AttentionParts sizes =
          attention_parts(forward, backward, rules_.options.attention_bytes);
      char* const memory = scratch.take<char>(sizes.bytes);
      backward ? attention_in_parts(args, sizes, memory)
               : attention_in_parts(forward, sizes, memory);
      return {};
    }
  }
  return "unknown way";
}

__global__ void add_rows(float* out, const float* partial, std::int64_t blocks, std::int64_t C) {
  constexpr int kGroups = kMostThreads / kWarp;  // each has every kGroups-th row
  AXONN_SHARED(sums, float[kMostThreads]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (c < C)
#pragma unroll 8
    for (std::int64_t b = thread / kWarp; b < blocks; b += kGroups) sum += partial[b * C + c];
  sums[thread] = sum;
  __syncthreads();
  if (thread >= kWarp || c >= C) return;
  for (int group = 1; group < kGroups; ++group) sum += sums[group * kWarp + lane];
  out[c] += sum;
}

void add_bias(Stream& stream, const View& out, const View& bias) {
  with_types(out.dtype, bias.dtype, [&]<typename Out, typename B>(Out, B) {
    const Matrix<const B> in_each_row{address<const B>(bias), 0};
    launch_tiles(handle_of(stream), out.rows, out.cols, kTile,
                 rowwise::Binary<rowwise::Plus, Out, Out, B>{out, out, in_each_row});
  });
}

template <typename T>
void Launch::rows_by_id(const rowwise::EmbeddingBackwardKernel<T>& kernel) const {
  if (kernel.R * kernel.C * kernel.V == 0) return;
  const IdSpans spans{scratch.take<int>(kernel.V), scratch.take<int>(kernel.V)};
  const auto blocks = [](std::int64_t n) { return grid_of(tiles_of(n, kMostThreads)); };
  launch_kernel(stream, blocks(kernel.V), kMostThreads, clear_spans, spans,
                static_cast<int>(kernel.V), static_cast<int>(kernel.R));
  launch_kernel(stream, blocks(kernel.R), kMostThreads, find_spans<T>, kernel, spans);
  const int threads = std::max(threads_for(kernel.C, kPack), 8 * kWarp);  // they also search
  launch_kernel(stream, grid_of(kernel.R), threads, add_token_gradients<T>, kernel, spans);
}

void CudaBackend::run(const RowwiseOperation& operation) {
  Scratch scratch(arena_);
  std::visit(
      [&](const auto& args) {
        args.run(Launch{stream(), scratch}, {args.kName});
      },
      operation);
}

}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(int gpu, const CudaOptions& options) {
  const CudaStatus status = cuda_status();
  if (!status.trouble.empty()) refuse(gpu_platform()->device, ": ", status.trouble);
  if (gpu < 0 || gpu >= std::ssize(status.gpus))
    refuse(gpu_platform()->device, ": there is no GPU ", gpu, "; there are ", status.gpus.size(),
           ", numbered from 0");
  cuda::check("cudaSetDevice", cudaSetDevice(gpu));
  cuda::check_kernels(status.gpus[gpu]);
  if (options.attention == CudaAttention::cudnn && cuda::CudnnAttention::version() == 0)
    refuse("attention: this axonn was built without cuDNN; configure with -DAXONN_CUDNN=ON");
  return std::make_unique<cuda::CudaBackend>(status.gpus[gpu], options);
}

std::string cuda_product_library() { return cuda::BlasPlans::library(); }

std::string cuda_attention_library() { return cuda::CudnnAttention::library(); }

int cuda_attention_version() { return cuda::CudnnAttention::version(); }

}  // namespace axonn
