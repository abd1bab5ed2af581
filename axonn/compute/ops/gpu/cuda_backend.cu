#include <algorithm>
#include <iterator>
#include <variant>

#include "axonn/compute/ops/gpu/attention/flash_attention.cuh"
#include "axonn/compute/ops/gpu/cuda_backend.cuh"
#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/gpu/norm_backward.cuh"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/adafactor.h"
#include "axonn/compute/ops/rowwise/delta.h"
#include "axonn/compute/ops/rowwise/dequantize.h"
#include "axonn/compute/ops/rowwise/divergence.h"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/embedding.h"
#include "axonn/compute/ops/rowwise/experts.h"
#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/moments.h"
#include "axonn/compute/ops/rowwise/norm.h"
#include "axonn/compute/ops/rowwise/optimizer.h"
#include "axonn/compute/ops/rowwise/order.h"
#include "axonn/compute/ops/rowwise/reduce.h"
#include "axonn/compute/ops/rowwise/route.h"
#include "axonn/compute/ops/rowwise/softmax.h"
#include "axonn/compute/ops/rowwise/token_record.h"
#include "axonn/compute/ops/rowwise/word_sums.h"
#include "axonn/compute/ops/rowwise/xielu.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"

namespace axonn {

namespace cuda {

namespace {

/// Sums of the rows of a token, of which a block's threads have a pack of columns each. `lanes` of
/// them have the same columns and share the rows, of which several are under way at a time: a token
/// may have thousands.
template <typename T>
class TokenSum {
 public:
  __device__ TokenSum(Matrix<const T> rows, int C, int first)
      : rows_(rows),
        packs_(across(C)),
        lanes_(static_cast<int>(blockDim.x) / packs_),
        lane_(static_cast<int>(threadIdx.x) / packs_),
        column_(first + static_cast<int>(threadIdx.x) % packs_ * kPack),
        count_(C - column_) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum_.value[j] = 0;
  }

  /// Threads that have different columns, of C from the first on.
  __host__ __device__ static int across(int C) {
    const int packs = (C + kPack - 1) / kPack;
    return packs < kMostThreads ? packs : kMostThreads;
  }

  __device__ void add(const int* listed, int count) {
    constexpr int kRows = 4;
    if (lane_ >= lanes_ || count_ <= 0) return;
    int i = lane_;
    for (; i + (kRows - 1) * lanes_ < count; i += kRows * lanes_) {
      Values<kPack> next[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) next[k] = row(listed[i + k * lanes_]);
#pragma unroll
      for (int k = 0; k < kRows; ++k) add(next[k]);
    }
    for (; i < count; i += lanes_) add(row(listed[i]));
  }

  /// y += the sums, the lanes' in their order.
  __device__ void store(float* y) {
    AXONN_SHARED(parts, float[kMostThreads][kPack + 1]);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int j = 0; j < kPack; ++j) parts[thread][j] = sum_.value[j];
    __syncthreads();
    if (lane_ == 0 && count_ > 0)
      for (int j = 0; j < kPack && j < count_; ++j) {
        float sum = y[column_ + j];
        for (int lane = 0; lane < lanes_; ++lane) sum += parts[lane * packs_ + thread][j];
        y[column_ + j] = sum;
      }
    __syncthreads();
  }

 private:
  __device__ Values<kPack> row(int r) const {
    return load_values<kPack>(rows_.row(r) + column_, count_);
  }
  __device__ void add(const Values<kPack>& x) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum_.value[j] += x.value[j];
  }

  Matrix<const T> rows_;
  int packs_, lanes_, lane_, column_, count_;
  Values<kPack> sum_;
};

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

/// d_table[ids[r] - first] += d_out[r], in an order that depends on the ids alone. There is one
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
  const int warp = thread / kWarp, lane = thread % kWarp, at_once = kEach * threads;
  for (int begin = row; begin < end; begin += at_once) {
    const int ids = end - begin < at_once ? end - begin : at_once;
    for (int i = thread; i < (ids + threads - 1) / threads * threads; i += threads) {
      const Lanes here = lanes_with(i < ids && args.ids[begin + i] == id);
      if (lane == 0) found[i / kWarp] = here;
    }
    __syncthreads();
    int listed = 0;
    for (int i = 0; i * kWarp < ids; ++i) {
      const Lanes here = found[i], below = here & ((Lanes{1} << lane) - 1);
      if (i % (threads / kWarp) == warp && (here >> lane & 1) != 0)
        rows[listed + count(below)] = begin + i * kWarp + lane;
      listed += count(here);
    }
    __syncthreads();
    for (int first = 0; first < args.C; first += kMostThreads * kPack) {
      TokenSum<T> sum(args.d_out, args.C, first);
      sum.add(rows, listed);
      sum.store(args.d_table.row(id - args.first));
    }
  }
}

/// Throws if this build has no kernels for the GPU.
void check_kernels(const CudaGpu& gpu) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, add_rows<1>);
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
      products_(arena_, gpu.multiprocessors),
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
  best_offer(std::move(offers), [&] { return describe(args.forward, backward); });  // throws
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
  constexpr int kLanes = 4, kFewest = 256;  // they also search
  const int threads =
      std::clamp(threads_for(std::int64_t{kLanes} * kernel.C, kPack), kFewest, kMostThreads);
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
