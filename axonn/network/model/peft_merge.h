#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/network/model/config.h"
#include "axonn/network/model/peft.h"

namespace axonn {

// Adapters of PEFT that change more than a model's adapters do: modules that were trained whole,
// biases, adapters of the embedding or of the output layer. They are read by merging them into the
// weights of the base model.

inline constexpr std::string_view kHeadWeight = "lm_head.weight";  ///< if the model is not tied

/// Whether the model's adapters or whole modules change its embedding or its output layer.
bool changes_ends(const ModelConfig& model);

/// Whether the adapters of a folder with these tensors are read by merging alone.
bool needs_merging(const StoredAdapterConfig& stored, std::span<const std::string> tensors);

/// The adapters of such a folder with the base layers in it, as what training starts from. Throws
/// UsageError for biases, for modules that the folder does not have, and for base layers with other
/// values than those in `base`, the base model's folder.
LoraConfig adapters_to_train(const StoredAdapterConfig& stored, const SafetensorsFolder& folder,
                             const SafetensorsFolder& base, const ModelConfig& model);

/// Whether these tensors give a tied model an output layer with other values than the embedding.
bool unties(std::span<const std::string> tensors);

/// The parameters of `model`, which is not tied if unties(), with the adapters of `folder` merged
/// into those of `base`, which are those of base_parameters(). Throws UsageError that lists tensors
/// that do not fit, and for tensors that PEFT would not read.
std::unique_ptr<ParameterSource> merged_source(std::unique_ptr<ParameterSource> base,
                                               SafetensorsFolder folder,
                                               const StoredAdapterConfig& stored,
                                               const ModelConfig& model,
                                               std::vector<StoredParameter> parameters);

/// The parameters that the base of such a model has, which is tied or not.
std::vector<StoredParameter> base_parameters(std::vector<StoredParameter> parameters, bool tied);

}  // namespace axonn
