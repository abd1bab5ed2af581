#pragma once

#include <vector>

#include "axonn/network/model/config.h"

#include "tests/support/reference.h"
#include "tests/support/router_reference.h"

namespace axonn::reference {

/// A forward pass: the logits (B·T, V), those of each of mtp_layers (which mean nothing in rows
/// without a next token), and what the router of each layer with experts chose.
struct LlamaPass {
  Matrix logits;
  std::vector<Matrix> further;
  std::vector<Routing> routings;
};

/// A pass of a model of the family llama over sequences of `positions` tokens, computed directly
/// from the published definitions. `repeated`: a pass whose choices of experts are made again;
/// empty: routers choose.
LlamaPass llama_pass(const ModelConfig& config, const Weights& weights,
                     const std::vector<std::int32_t>& ids, std::int64_t positions,
                     const std::vector<Routing>& repeated = {});
/// Its logits.
Matrix llama_logits(const ModelConfig& config, const Weights& weights,
                    const std::vector<std::int32_t>& ids, std::int64_t positions);

/// The logits (B·T, V) of a GPT-2 or an OPT over sequences of `positions` tokens, likewise.
Matrix gpt_logits(const ModelConfig& config, const Weights& weights,
                  const std::vector<std::int32_t>& ids, std::int64_t positions);

}  // namespace axonn::reference
