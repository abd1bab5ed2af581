#pragma once

#include <span>
#include <string_view>

#include "axonn/network/model/config.h"

namespace axonn {

/// The sizes of a published model such as "llama-3.1-8b", with its name set, and not resolved().
/// The GPTs of the paper (gpt-5b to gpt-640b) have a vocab of 32,000 and training.seq_len
/// positions. Throws UsageError, with a similar name or with all names, if there is no such model.
ModelConfig known_model(std::string_view name);

/// The choices of the key model.name: "none", then the names of all models, families one after
/// another, each from small to large.
std::span<const std::string_view> model_names();

}  // namespace axonn
