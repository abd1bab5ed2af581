#pragma once

#include <vector>

#include "axonn/io/checkpoint.h"
#include "axonn/io/safetensors_folder.h"
#include "axonn/model/model.h"

namespace axonn {

/// Reads a model's parameters from a Hugging Face folder: every rank its own slices, a few MiB at a
/// time, in bf16, f16 or f32, into master copies, or into the compute copies of what is frozen.
/// `groups` are allocated, and all that the folder should have, in the order of the forward pass.
///
/// Collective over the grid. Errors: UsageError that lists every tensor that is missing, unknown,
/// of another shape or of no type that is read; nothing is read then.
LoadCost load_pretrained(const Context& ctx, const ModelConfig& config,
                         const std::vector<ParameterGroup*>& groups,
                         const SafetensorsFolder& folder,
                         const CheckpointReader::Progress& progress = {});

}  // namespace axonn
