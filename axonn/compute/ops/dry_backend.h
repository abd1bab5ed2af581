#pragma once

#include <memory>
#include <optional>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/attention_ways.h"
#include "axonn/compute/tensor/recording.h"

namespace axonn {

/// A Backend on a dry device: operations compute nothing. If a recording is given, it records them
/// there, with shapes, layer and the flops of products and attention. The recording must outlive
/// the backend.
///
/// It stands for the CPU, or for a GPU on which these rules hold: operations then take the memory
/// that they take there besides their operands. (Those of generation do not.)
std::unique_ptr<Backend> make_dry_backend(Recording* recording = nullptr,
                                          std::optional<AttentionRules> gpu = {});

}  // namespace axonn
