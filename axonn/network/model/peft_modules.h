#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/config.h"
#include "axonn/network/model/peft_layers.h"

namespace axonn {

// Adapters are of the model's products, PEFT's are of the modules that files of the model's type
// have. These may have other names, or several products together: qkv_proj, in_proj_qkvz.

/// The adapters that `stored`, which names modules as files do, gives the products of a model:
/// those of a module that is several products are of each of these. The same if they all have the
/// files' names.
LoraConfig adapters_in_model(const ModelConfig& model, LoraConfig stored);

/// The adapters of a model as PEFT stores them.
struct PeftAdapters {
  /// Its parameters are those of the products, but of a module of several products the module's, by
  /// the names of PEFT's tensors, which begin with kPeftPrefix.
  std::unique_ptr<ParameterSource> source;
  std::vector<AdaptedModule> modules;  ///< by the files' names, without a prefix
  std::vector<std::string> whole;      ///< parameters that are trained whole
};
/// `source` has those of the model's products. A module of several products has their ranks
/// together: its A (Σr, in) is their A, one below the other, and B (out, Σr) has each product's B
/// in the rows of that product and in the columns of its A, and zeros elsewhere. Throws UsageError
/// for magnitudes of a part of a module.
PeftAdapters peft_adapters(std::unique_ptr<ParameterSource> source, const ModelConfig& model);

}  // namespace axonn
