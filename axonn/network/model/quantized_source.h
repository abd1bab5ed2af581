#pragma once

#include <memory>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// The source of a model as a run with its config computes with it: the values that the codes of
/// its matrices stand for (ModelConfig::quantize), which adapters were trained beside; and those of
/// other parameters, as `base` has them. Throws UsageError for a value that cannot be quantized.
std::unique_ptr<ParameterSource> quantized_source(std::unique_ptr<ParameterSource> base,
                                                  const ModelConfig& model);

}  // namespace axonn
