#include <cmath>

#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/cross_entropy.h"
#include "axonn/ops/rowwise/optimizer.h"
#include "axonn/ops/rowwise/reduce.h"

namespace axonn::cuda {

namespace {

/// out += the partials, in an order that depends only on their number. Runs in one block.
template <typename T>
__global__ void add_partials(T* out, const T* partial, std::int64_t count) {
  T mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) mine += partial[i];
  const T total = block_sum(mine);
  if (threadIdx.x == 0) *out += total;
}

__global__ void set_clip_factor(float* out, const double* squared_norm, float max_norm) {
  const double norm = sqrt(*squared_norm);
  *out = max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

}  // namespace

void CudaBackend::softmax_stats(View out, View logits, View targets, VocabularyPiece piece) {
  check_softmax_stats(out, logits, targets, piece);
  with_type(logits.dtype, [&]<typename T>(T) {
    launch_rows(stream(), logits.rows, logits.cols,
                rowwise::SoftmaxStats<T>{matrix<float>(out), matrix<const T>(logits),
                                         targets.as<const std::int32_t>(), piece.first,
                                         static_cast<int>(piece.valid)});
  });
}

void CudaBackend::combine_softmax(View loss, View lse, View stats, View targets) {
  const std::int64_t pieces =
      check_softmax_pieces("combine_softmax", {"loss", loss}, stats, targets);
  check_softmax_pieces("combine_softmax", {"lse", lse}, stats, targets);
  if (pieces == 0) return;
  launch_tiles(
      stream(), 1, loss.rows, kTile,
      rowwise::CombineSoftmax{matrix<float>(loss), matrix<float>(lse), matrix<const float>(stats),
                              targets.as<const std::int32_t>(), loss.rows, pieces});
}

void CudaBackend::greedy_targets(View out, View stats, View targets) {
  const std::int64_t pieces = check_softmax_pieces("greedy_targets", {"out", out}, stats, targets);
  if (pieces == 0) return;
  launch_tiles(stream(), 1, out.rows, kTile,
               rowwise::GreedyTargets{matrix<float>(out), matrix<const float>(stats),
                                      targets.as<const std::int32_t>(), out.rows, pieces});
}

void CudaBackend::cross_entropy_backward(const LogitsBackward& args) {
  check_cross_entropy_backward(args);
  const View& logits = args.logits;
  with_type(logits.dtype, [&]<typename T>(T) {
    with_type(args.d_logits.dtype, [&]<typename Out>(Out) {
      const rowwise::CrossEntropyBackward<Out, T> kernel{
          .d_logits = matrix<Out>(args.d_logits),
          .logits = matrix<const T>(logits),
          .lse = matrix<const float>(args.lse),
          .targets = args.targets.as<const std::int32_t>(),
          .first = args.piece.first,
          .V = static_cast<int>(logits.cols),
          .valid = static_cast<int>(args.piece.valid),
          .scale = args.scale,
      };
      launch_rows(stream(), logits.rows, logits.cols, kernel);
    });
  });
}

template <template <typename> typename Partials, typename Sum>
void CudaBackend::reduce(View out, View inp) {
  flatten(inp);
  const std::int64_t tiles = inp.rows * tiles_of(inp.cols, kSumTile);
  Sum* partial = scratch_.take<Sum>(tiles);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(stream(), inp.rows, inp.cols, kSumTile,
                 Partials<T>{partial, matrix<const T>(inp)});
  });
  add_partials<<<1, kMostThreads, 0, stream()>>>(out.as<Sum>(), partial, tiles);
  check(cudaGetLastError());
}

void CudaBackend::sum(View out, View inp) {
  check_reduction("sum", DType::f64, out, inp);
  reduce<rowwise::SumPartials, double>(out, inp);
}

void CudaBackend::squared_sum(View out, View inp) {
  check_reduction("squared_sum", DType::f64, out, inp);
  reduce<rowwise::SquaredSumPartials, double>(out, inp);
}

void CudaBackend::count_nonfinite(View out, View inp) {
  check_reduction("count_nonfinite", DType::i64, out, inp);
  reduce<rowwise::NonfinitePartials, std::int64_t>(out, inp);
}

void CudaBackend::clip_factor(View out, View squared_norm, float max_norm) {
  check_clip_factor(out, squared_norm);
  set_clip_factor<<<1, 1, 0, stream()>>>(out.as<float>(), squared_norm.as<const double>(),
                                         max_norm);
  check(cudaGetLastError());
}

void CudaBackend::adamw(const AdamWUpdate& args) {
  check_adamw(args);
  const double step = static_cast<double>(args.step);
  with_type(args.out.dtype, [&]<typename Out>(Out) {
    const rowwise::AdamWStep<Out> kernel{
        .out = args.out.as<Out>(),
        .master = args.master.as<float>(),
        .first = args.first.as<float>(),
        .second = args.second.as<float>(),
        .gradient = args.gradient.as<const float>(),
        .scale = args.scale.as<const float>(),
        .lr = args.lr,
        .beta1 = args.beta1,
        .beta2 = args.beta2,
        .eps = args.eps,
        .weight_decay = args.weight_decay,
        .correction1 = static_cast<float>(1 / (1 - std::pow(double{args.beta1}, step))),
        .correction2 = static_cast<float>(1 / (1 - std::pow(double{args.beta2}, step))),
        .decayed = args.decayed,
    };
    launch_tiles(stream(), 1, args.master.cols, kTile, kernel);
  });
}

void CudaBackend::sgd(const SgdUpdate& args) {
  check_sgd(args);
  with_type(args.out.dtype, [&]<typename Out>(Out) {
    const rowwise::SgdStep<Out> kernel{
        .out = args.out.as<Out>(),
        .master = args.master.as<float>(),
        .gradient = args.gradient.as<const float>(),
        .scale = args.scale.as<const float>(),
        .lr = args.lr,
        .weight_decay = args.weight_decay,
        .decayed = args.decayed,
    };
    launch_tiles(stream(), 1, args.master.cols, kTile, kernel);
  });
}

}  // namespace axonn::cuda
