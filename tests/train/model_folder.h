#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/io/safetensors.h"
#include "axonn/model/config.h"
#include "axonn/parallel/parameters.h"

namespace axonn::test {

/// What element `index` of a parameter is: a number that BF16 and F16 can hold.
float value_of(const std::string& name, std::int64_t index);

/// Every parameter's spec, as one rank has it.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config);

struct FolderOptions {
  StoredType type = StoredType::bf16;
  std::string prefix = {};  // before every name
  bool shards = false;
  std::string without = {}, and_also = {};  // names
};

/// Writes the tensors of a model in Hugging Face's form.
void write_model(const std::string& folder, const ModelConfig& config,
                 const FolderOptions& options);

/// A model as a run of so many ranks saves it, with what the seed or model.path gives it; adapters
/// have values that matter.
void save_checkpoint(const std::string& folder, const ModelConfig& model, const GridShape& grid,
                     DType dtype = DType::f32);

/// The logits of the token behind a few others, whole, on a grid; the model is made or read as
/// model.path and lora.path say.
std::vector<float> logits(const ModelConfig& model, const GridShape& grid);

}  // namespace axonn::test
