#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/embedding.h"

namespace axonn::cuda {

namespace {

/// d_table[ids[r] - first] += d_out[r], for each table row in the order of the rows r, without
/// atomics. There is one block per row; the block of the first row with an id adds all rows that
/// have this id.
///
/// Bound by memory, R · C · (sizeof(T) + 8) bytes, plus the search: at most R² comparisons
/// of ids, which stay in cache.
template <typename T>
__global__ void __launch_bounds__(kMostThreads)
    add_token_gradients(const rowwise::EmbeddingBackward<T> args) {
  const int row = static_cast<int>(blockIdx.x), R = static_cast<int>(args.R),
            thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const std::int32_t id = args.ids[row];
  if (id < args.first || id >= args.first + args.V) return;  // the whole block
  for (int end = row; end > 0; end -= threads) {  // nearest first: frequent tokens end early
    const int r = end - 1 - thread;
    if (__syncthreads_or(r >= 0 && args.ids[r] == id)) return;
  }
  const Team team;
  __shared__ Lanes found[kMostThreads / kWarp];
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

}  // namespace

void CudaBackend::embedding(const TokenEmbedding& args) {
  check_embedding(args);
  with_type(args.out.dtype, [&]<typename T>(T) {
    const rowwise::EmbeddingForward<T> kernel{
        .out = matrix<T>(args.out),
        .ids = args.ids.as<const std::int32_t>(),
        .table = matrix<const T>(args.table),
        .learned = matrix<const T>(args.learned),
        .positions = args.positions.as<const std::int32_t>(),
        .first = args.first,
        .V = args.table.rows,
        .P = args.learned.rows,
        .R = args.out.rows,
        .C = static_cast<int>(args.out.cols),
    };
    launch_rows(stream(), args.out.rows, args.out.cols, kernel);
  });
}

void CudaBackend::embedding_backward(View d_table, View d_out, View ids, std::int64_t first) {
  check_embedding_backward(d_table, d_out, ids);
  if (d_out.count() == 0) return;
  with_type(d_out.dtype, [&]<typename T>(T) {
    const rowwise::EmbeddingBackward<T> args{
        .d_table = matrix<float>(d_table),
        .d_out = matrix<const T>(d_out),
        .ids = ids.as<const std::int32_t>(),
        .first = first,
        .V = d_table.rows,
        .R = d_out.rows,
        .C = static_cast<int>(d_out.cols),
    };
    const int threads = std::max(threads_for(d_out.cols, kPack), 4 * kWarp);  // they also search
    add_token_gradients<<<grid_of(d_out.rows), threads, 0, stream()>>>(args);
    check(cudaGetLastError());
  });
}

void CudaBackend::positions_backward(View d_positions, View d_out) {
  check_positions_backward(d_positions, d_out);
  with_type(d_out.dtype, [&]<typename T>(T) {
    const rowwise::PositionsBackward<T> kernel{
        .d_positions = matrix<float>(d_positions),
        .d_out = matrix<const T>(d_out),
        .positions_count = d_positions.rows,
        .R = d_out.rows,
        .C = static_cast<int>(d_out.cols),
    };
    launch_rows(stream(), d_positions.rows, d_out.cols, kernel);
  });
}

}  // namespace axonn::cuda
