#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/cross_entropy.h"

namespace axonn::cpu {

void CpuBackend::softmax_stats(View out, View logits, View targets, VocabularyPiece piece) {
  check_softmax_stats(out, logits, targets, piece);
  with_type(logits.dtype, [&]<typename T>(T) {
    launch_rows(threads_, logits.rows, logits.cols,
                rowwise::SoftmaxStats<T>{matrix<float>(out), matrix<const T>(logits),
                                         targets.as<const std::int32_t>(), piece.first,
                                         static_cast<int>(piece.valid)});
  });
}

void CpuBackend::combine_softmax(View loss, View lse, View stats, View targets) {
  const std::int64_t pieces =
      check_softmax_pieces("combine_softmax", {"loss", loss}, stats, targets);
  check_softmax_pieces("combine_softmax", {"lse", lse}, stats, targets);
  if (pieces == 0) return;
  launch_tiles(
      threads_, 1, loss.rows, kTile,
      rowwise::CombineSoftmax{matrix<float>(loss), matrix<float>(lse), matrix<const float>(stats),
                              targets.as<const std::int32_t>(), loss.rows, pieces});
}

void CpuBackend::greedy_targets(View out, View stats, View targets) {
  const std::int64_t pieces = check_softmax_pieces("greedy_targets", {"out", out}, stats, targets);
  if (pieces == 0) return;
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::GreedyTargets{matrix<float>(out), matrix<const float>(stats),
                                      targets.as<const std::int32_t>(), out.rows, pieces});
}

void CpuBackend::cross_entropy_backward(const LogitsBackward& args) {
  check_cross_entropy_backward(args);
  const auto& [d_logits, logits, lse, targets, piece, scale] = args;
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
