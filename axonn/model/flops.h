#pragma once

#include <cstdint>

#include "axonn/model/config.h"

namespace axonn {

/// Parameters of a resolved config, unpadded: all of them, embeddings included, adapters not.
std::int64_t parameter_count(const ModelConfig& model);

/// Flops of one token, forward and backward, of sequences of seq_len tokens, by the convention
/// `model`: 6 N + 6 L C T, with N all parameters that are multiplied (the logits' weight, not the
/// input embeddings) and attention's causal half, over all positions before (a window is not
/// subtracted); C is heads · head_dim there. Nothing recomputed is counted. With adapters it is 4
/// N, as frozen weights have no gradient, and the adapters' own few are left out.
double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len);

/// Flops of one step of `sequences`, by the three conventions in use. A figure says which.
struct StepFlops {
  double model = 0;     ///< model_flops_per_token
  double hardware = 0;  ///< and what is recomputed: a second forward pass of the blocks
  /// Narayanan et al., 2021, with recomputation, full attention and 96 B s l h² (...): what the
  /// AxoNN paper reports. It is a GPT's of this width whatever the family.
  double narayanan = 0;
};
StepFlops step_flops(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len,
                     bool recomputes);

}  // namespace axonn
