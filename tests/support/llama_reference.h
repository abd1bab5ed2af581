#pragma once

#include <vector>

#include "axonn/model/config.h"

#include "tests/support/reference.h"

namespace axonn::reference {

/// The logits (B·T, V) of a Llama, Mistral or Qwen for sequences of `positions` tokens, computed
/// directly from the published definitions.
Matrix llama_logits(const ModelConfig& config, const Weights& weights,
                    const std::vector<std::int32_t>& ids, std::int64_t positions);

}  // namespace axonn::reference
