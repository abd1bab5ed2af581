#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/io/load_slices.h"
#include "axonn/io/safetensors_folder.h"
#include "axonn/model/stored_names.h"
#include "axonn/parallel/parameters.h"

namespace axonn {

/// How a folder names tensors.
struct TensorNames {
  std::function<StoredName(const std::string& parameter)> of;
  std::function<bool(std::string_view tensor)> passed_over;  ///< that are no parameter's
  std::string_view config;  ///< the file that says which there should be
};

/// Of a model's own parameters in Hugging Face's form, and of its adapters in PEFT's.
TensorNames base_names(const ModelConfig& config);
TensorNames adapter_names(const ModelConfig& config);

/// The tensor of every parameter, without slices. Errors: UsageError that lists every tensor that
/// is missing, unknown, of another shape or of no type that is read.
std::vector<WantedSlices> find_tensors(const SafetensorsFolder& folder,
                                       const std::vector<const ParameterSpec*>& parameters,
                                       const TensorNames& names);

}  // namespace axonn
