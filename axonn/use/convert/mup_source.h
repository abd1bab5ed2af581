#pragma once

#include <memory>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// The parameters of a muP model as those of a model without muP that computes the same: the last
/// norm's are multiplied by 1 / m, for the logits; and if scores have a factor, it multiplies what
/// makes queries: the weights of their norm, else weights and biases of their product. The products
/// are in f32. Holds one slice at a time.
std::unique_ptr<ParameterSource> without_mup(std::unique_ptr<ParameterSource> source,
                                             const ModelConfig& model);
/// The config of that model.
ModelConfig without_mup(ModelConfig model);

}  // namespace axonn
