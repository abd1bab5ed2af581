#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// The columns of a matrix of n rows, of which each rank along an axis holds as many: all of them,
/// on every rank. Collective over `across`.
std::vector<float> gather_columns(Communicator& across, std::vector<float> mine, std::int64_t n,
                                  const char* what);

/// The values of a tensor in f32, bf16 or f16, in host memory.
std::vector<float> host_values(const Context& ctx, const Tensor& from);

/// Throws UsageError for a sequence that a model cannot compute: it has no tokens, more than
/// `most`, or one that is not in the vocabulary.
void check_sequence(LoadedModel& model, std::span<const std::int32_t> tokens, std::int64_t most);

/// Throws UsageError for a form that this model's keys and values cannot have on its device.
void check_kept_form(LoadedModel& model, const KeptForm& form);

/// Makes the model's backend multiply integers (Backend::set_integer_products()) from now on.
/// Throws UsageError without codes of GGUF, with drafts, and if the backend cannot do that.
void use_integer_products(LoadedModel& model, bool drafts);

/// Logits (T, V) of the token after each of the T tokens of a sequence, the same on every rank.
/// Every (z, data) coordinate computes all of them. Collective over the model's ranks;
/// communication: a forward pass, and an all-gather of the logits over x. Throws as
/// check_sequence(), with the model's positions.
std::vector<float> logits_of(LoadedModel& model, std::span<const std::int32_t> tokens);

}  // namespace axonn
