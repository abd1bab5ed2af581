#pragma once

#include <cstdint>

#include "axonn/model/config.h"

namespace axonn {

/// The number of parameters of a resolved config, without padding, with embeddings, without
/// adapters.
std::int64_t parameter_count(const ModelConfig& model);

/// Flops of one token, forward and backward, in sequences of seq_len tokens, by the convention
/// `model`: 6 N + 6 L C T. N counts all parameters but the input embeddings; a tied output layer
/// counts. The second term is the causal half of attention over all previous positions, even with a
/// window; C is heads · head_dim there. Recomputation is not counted. With adapters the first term
/// is 4 N, as frozen weights have no gradient, and the adapters' own few flops are left out.
double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len);

/// Flops of one step of `sequences`, by the three conventions in use. Output names the convention.
struct StepFlops {
  double model = 0;     ///< model_flops_per_token
  double hardware = 0;  ///< model, plus recomputation: a second forward pass of the blocks
  /// 96 B s l h² (...) of Narayanan et al., 2021, with recomputation and full attention, as in the
  /// AxoNN paper. For any family, it is the value of a GPT of this width.
  double narayanan = 0;
};
/// For a registered family (model/model.h), `model` is Model::flops_per_token() and
/// `narayanan` is 0.
StepFlops step_flops(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len,
                     bool recomputes);

}  // namespace axonn
