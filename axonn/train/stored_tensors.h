#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/model/stored_names.h"
#include "axonn/parallel/parameters.h"
#include "axonn/storage/load_slices.h"
#include "axonn/storage/safetensors/safetensors_folder.h"

namespace axonn {

/// The names that a folder uses for tensors.
struct TensorNames {
  std::function<StoredName(const std::string& parameter)> of;
  std::function<bool(std::string_view tensor)> passed_over;  ///< tensors to ignore
  std::string_view config;  ///< file that describes which tensors there should be
};

/// Names of a model's own parameters in Hugging Face's format, and of its adapters' in PEFT's.
TensorNames base_names(const ModelConfig& config);
TensorNames adapter_names(const ModelConfig& config);

/// Finds the tensor of every parameter; slices are left empty. Throws UsageError that lists every
/// tensor that is missing, unknown, of another shape, or of a type that cannot be read.
std::vector<WantedSlices> find_tensors(const SafetensorsFolder& folder,
                                       const std::vector<const ParameterSpec*>& parameters,
                                       const TensorNames& names);

}  // namespace axonn
