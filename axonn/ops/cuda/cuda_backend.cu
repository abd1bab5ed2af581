#include <algorithm>
#include <iterator>
#include <variant>

#include "axonn/ops/cuda/attention/attention_graph.h"
#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/rowwise/elementwise.h"
#include "axonn/ops/rowwise/embedding.h"
#include "axonn/ops/rowwise/experts.h"
#include "axonn/ops/rowwise/heads.h"
#include "axonn/ops/rowwise/norm.h"
#include "axonn/ops/rowwise/optimizer.h"
#include "axonn/ops/rowwise/order.h"
#include "axonn/ops/rowwise/reduce.h"
#include "axonn/ops/rowwise/route.h"
#include "axonn/ops/rowwise/softmax.h"
#include "axonn/ops/rowwise/xielu.h"
#include "axonn/tensor/address.h"
#include "axonn/tensor/cuda/cuda_device.h"

namespace axonn {

namespace cuda {

namespace {

/// d_table[ids[r] - first] += d_out[r], for each table row in the order of the rows r, without
/// atomics. There is one block per row; the block of the first row with an id adds all rows that
/// have this id.
///
/// Bound by memory, R · C · (sizeof(T) + 8) bytes, plus the search: at most R² comparisons
/// of ids, which stay in cache.
template <typename T>
__global__ void __launch_bounds__(kMostThreads, kAtOnce)
    add_token_gradients(const rowwise::EmbeddingBackwardKernel<T> args) {
  const int row = static_cast<int>(blockIdx.x), R = static_cast<int>(args.R),
            thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int32_t id = args.ids[row];
  if (id < args.first || id >= args.first + args.V) return;  // the whole block
  for (int end = row; end > 0; end -= threads) {  // nearest first: frequent tokens end early
    const int r = end - 1 - thread;
    if (__syncthreads_or(r >= 0 && args.ids[r] == id)) return;
  }
  const Team team;
  AXONN_SHARED(found, Lanes[kMostThreads / kWarp]);
  float* y = args.d_table.row(id - args.first);
  for (int begin = row; begin < R; begin += threads) {
    const int r = begin + thread;
    const Lanes here = lanes_with(r < R && args.ids[r] == id);
    if (thread % kWarp == 0) found[thread / kWarp] = here;
    __syncthreads();
    for (int warp = 0; warp < threads / kWarp; ++warp)
      for (Lanes left = found[warp]; left != 0; left &= left - 1) {
        const int next = begin + warp * kWarp + lowest(left);
        team.map(
            y, args.C, [](float a, float b) { return a + b; }, y, args.d_out.row(next));
      }
    __syncthreads();  // before found is written again
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

CudaBackend::CudaBackend(int gpu, std::string gpu_name, const CudaOptions& options)
    : device_(make_cuda_device(gpu)),
      gpu_name_(std::move(gpu_name)),
      options_(options),
      scratch_(*device_),
      products_(*device_),
      cudnn_(*device_, scratch_, options) {}

std::vector<std::string> CudaBackend::take_remarks() {
  std::vector<std::string> remarks = products_.take_remarks();
  std::ranges::move(cudnn_.take_remarks(), std::back_inserter(remarks));
  return remarks;
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
  if (kernel.R * kernel.C == 0) return;
  const int threads = std::max(threads_for(kernel.C, kPack), 4 * kWarp);  // they also search
  launch_kernel(stream, grid_of(kernel.R), threads, add_token_gradients<T>, kernel);
}

void CudaBackend::run(const RowwiseOperation& operation) {
  std::visit(
      [&](const auto& args) {
        args.run(Launch{stream(), scratch_}, {args.kName});
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
  CudaOptions chosen = options;
  if (chosen.score_bytes == 0) chosen.score_bytes = score_bytes_of(status.gpus[gpu].memory_bytes);
  return std::make_unique<cuda::CudaBackend>(gpu, status.gpus[gpu].name, chosen);
}

std::string cuda_product_library() { return cuda::Products::library(); }

std::string cuda_attention_library() { return cuda::CudnnAttention::library(); }

}  // namespace axonn
