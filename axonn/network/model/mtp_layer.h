#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/network/model/decoder.h"

namespace axonn {

/// Attached to a pass of Model::loss(), adds the losses of further tokens: to the gradient that of
/// weight times their mean over the layers that predict them.
struct MtpLoss {
  float weight = 0;
  View total = {};  ///< (1, 1) f64 += this rank's part of the sum of all their losses
};

/// A layer behind the others that predicts the token after the one that they predict (multi-token
/// prediction). With e of the token that they predict, h of the layer before and [a; b] side by
/// side,
///
///   h' = norm(block(W · [norm(e); norm(h)])),  logits = output layer · h'
///
///   global              dims      this rank holds          cut over
///   e, h, h'            (R, C)    (R/Gd/Gz, C/Gy)          y; rows over x
///   eh_proj             (C, 2C)   (C/Gy, 2C/Gx)            x and y
///   enorm, hnorm, shared_head.norm  (C)  C/Gy              y
///
/// h of the first such layer is the model's, after its last norm. The embedding and the output
/// layer are the model's, too. e and h are gathered over x and y: 2 R · C elements forward, and
/// 2 R · C backward over x.
///
/// Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024 (arXiv 2412.19437), section 2.2.
class MtpLayer {
 public:
  /// Declares name.enorm.weight and so on beside the block's parameters. Throws UsageError if x
  /// does not divide 2 C.
  MtpLayer(const ModelConfig& config, const Grid& grid, const std::string& name,
           const Norm::Options& norm, std::unique_ptr<DecoderBlock> block);

  /// Returns h' of e and h; `number`: see run_block().
  Var operator()(const Context& ctx, const Var& e, const Var& h, std::int64_t number) const;

  std::vector<ParameterGroup*> groups() const;
  const DecoderBlock& block() const { return *block_; }

 private:
  const std::unique_ptr<ParameterGroup> parameters_;
  const std::int64_t width_;
  Norm embedding_norm_, hidden_norm_;
  Linear project_;
  Norm end_;
  std::unique_ptr<DecoderBlock> block_;
};

}  // namespace axonn
