#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "axonn/network/model/model.h"

namespace axonn {

/// The number of parameters of a model, by their layouts: without padding.
std::int64_t parameter_count(Model& model);

/// The parameters of a group that one token uses: of experts, per_row of all.
std::int64_t active_parameters(const ParameterGroup& group, const Routers& routers);

// Those below make the model of a resolved config on one rank, without memory, and count its
// parameters, a few milliseconds even for the largest.

/// The number of parameters, without padding, with embeddings, without adapters.
std::int64_t parameter_count(const ModelConfig& model);
/// The parameters that one token uses: of the experts, experts_per_token in each layer.
std::int64_t active_parameter_count(const ModelConfig& model);
/// "46,702,792,704 parameters, 12,879,925,248 active", or without experts only the first count.
std::string parameters_text(const ModelConfig& model);

/// Model::flops_per_token() of the model.
double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len);

/// Flops of one step of `sequences`, by the three conventions in use. Output names the convention.
struct StepFlops {
  double model = 0;     ///< model_flops_per_token
  double hardware = 0;  ///< model, plus recomputation: a second forward pass of some blocks
  /// 96 B s l h² (...) of Narayanan et al., 2021, with recomputation and full attention, as in the
  /// AxoNN paper. For a dense model of any family of the library, it is the value of a GPT of this
  /// width; other models have none.
  std::optional<double> narayanan = {};
};
/// recomputed: the share of the blocks whose forward pass runs twice.
StepFlops step_flops(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len,
                     double recomputed);

}  // namespace axonn
