#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/cross_entropy.h"

namespace axonn::cpu {

namespace {

void check_logits(const Checker& check, const View& logits, const View& targets,
                  const VocabularyPiece& piece) {
  check.compute_type("logits", logits);
  check.shape("logits", logits, logits.rows, logits.cols);
  check.type("targets", targets, {DType::i32});
  check.shape("targets", targets, 1, logits.rows);
  AXONN_CHECK(piece.first >= 0 && piece.valid >= 0 && piece.valid <= logits.cols, check.operation,
              ": ", piece.valid, " columns from ", piece.first, " of logits ", logits);
}

/// The pieces that stats stacks for as many rows as targets has. Errors: the shapes do not fit.
std::int64_t check_stats(const Checker& check, const View& stats, const View& targets) {
  const std::int64_t rows = targets.cols, pieces = rows == 0 ? 1 : stats.rows / rows;
  check.type("targets", targets, {DType::i32});
  check.shape("targets", targets, 1, rows);
  check.type("stats", stats, {DType::f32});
  check.shape("stats", stats, pieces * rows, 3);
  AXONN_CHECK(pieces >= 1, check.operation, ": stats is ", stats, " for ", rows, " rows");
  return pieces;
}

}  // namespace

void CpuBackend::softmax_stats(View out, View logits, View targets, VocabularyPiece piece) {
  const Checker check{"softmax_stats"};
  check_logits(check, logits, targets, piece);
  check.type("out", out, {DType::f32});
  check.shape("out", out, logits.rows, 3);
  with_type(logits.dtype, [&]<typename T>(T) {
    launch_rows(threads_, logits.rows, logits.cols,
                rowwise::SoftmaxStats<T>{matrix<float>(out), matrix<const T>(logits),
                                         targets.as<const std::int32_t>(), piece.first,
                                         static_cast<int>(piece.valid)});
  });
}

void CpuBackend::combine_softmax(View loss, View lse, View stats, View targets) {
  const Checker check{"combine_softmax"};
  const std::int64_t pieces = check_stats(check, stats, targets);
  check.type("loss", loss, {DType::f32});
  check.shape("loss", loss, targets.cols, 1);
  check.type("lse", lse, {DType::f32});
  check.shape("lse", lse, targets.cols, 1);
  if (loss.rows == 0) return;
  launch_tiles(
      threads_, 1, loss.rows, kTile,
      rowwise::CombineSoftmax{matrix<float>(loss), matrix<float>(lse), matrix<const float>(stats),
                              targets.as<const std::int32_t>(), loss.rows, pieces});
}

void CpuBackend::greedy_targets(View out, View stats, View targets) {
  const Checker check{"greedy_targets"};
  const std::int64_t pieces = check_stats(check, stats, targets);
  check.type("out", out, {DType::f32});
  check.shape("out", out, targets.cols, 1);
  if (out.rows == 0) return;
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::GreedyTargets{matrix<float>(out), matrix<const float>(stats),
                                      targets.as<const std::int32_t>(), out.rows, pieces});
}

void CpuBackend::cross_entropy_backward(const LogitsBackward& args) {
  const auto& [d_logits, logits, lse, targets, piece, scale] = args;
  const Checker check{"cross_entropy_backward"};
  check_logits(check, logits, targets, piece);
  check.compute_type("d_logits", d_logits);
  check.shape("d_logits", d_logits, logits.rows, logits.cols);
  check.type("lse", lse, {DType::f32});
  check.shape("lse", lse, logits.rows, 1);
  with_type(logits.dtype, [&]<typename T>(T) {
    with_type(d_logits.dtype, [&]<typename Out>(Out) {
      const rowwise::CrossEntropyBackward<Out, T> kernel{
          .d_logits = matrix<Out>(d_logits),
          .logits = matrix<const T>(logits),
          .lse = matrix<const float>(lse),
          .targets = targets.as<const std::int32_t>(),
          .first = piece.first,
          .V = static_cast<int>(logits.cols),
          .valid = static_cast<int>(piece.valid),
          .scale = scale,
      };
      launch_rows(threads_, logits.rows, logits.cols, kernel);
    });
  });
}

}  // namespace axonn::cpu
