#pragma once

#include <span>
#include <string_view>

#include "axonn/model/config.h"

namespace axonn {

/// The sizes of a published model, "llama-3.1-8b"; its name is set, and nothing is resolved.
/// The GPTs of the paper (gpt-5b to gpt-640b) have a vocab of 32,000, and follow training.seq_len.
/// Errors: UsageError with the likely meaning, or with all names.
ModelConfig known_model(std::string_view name);

/// All names: families one after another, each from small to large.
std::span<const std::string_view> known_model_names();

/// What the key model.name takes: "none", then all names.
std::span<const std::string_view> model_name_choices();

}  // namespace axonn
