#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/network/model/config.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/run/config/config.h"

namespace axonn::test {

/// Returns the value of element `index` of a parameter, which BF16 and F16 can represent.
float value_of(const std::string& name, std::int64_t index);

/// Returns the specs of all parameters, as on one rank.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config);

struct FolderOptions {
  StoredType type = StoredType::bf16;
  std::string prefix = {};  // of every name
  bool shards = false;
  bool joined = false;  // experts as newer versions of transformers may store them
  std::string without = {}, and_also = {};  // names of tensors to leave out, and to add
};

/// Writes the tensors of a model in Hugging Face's format.
void write_model(const std::string& folder, const ModelConfig& config,
                 const FolderOptions& options);

/// Saves a checkpoint as a run on this grid does, with the values that the seed or model.path
/// gives; adapters get values other than zero.
void save_checkpoint(const std::string& folder, const ModelConfig& model, const GridShape& grid,
                     DType dtype = DType::f32);

/// Returns all logits of the token after a few others, computed on a grid; the model is initialised
/// or read as model.path and lora.path say.
std::vector<float> logits(const ModelConfig& model, const GridShape& grid);
/// The same of a config whose files may be open.
std::vector<float> logits(Config config, const GridShape& grid);

}  // namespace axonn::test
