#pragma once

#include <vector>

#include "axonn/io/checkpoint.h"
#include "axonn/io/safetensors_folder.h"
#include "axonn/model/model.h"
#include "axonn/train/stored_tensors.h"

namespace axonn {

/// Reads parameters from a folder of safetensors: every rank its own slices, a few MiB at a time,
/// in bf16, f16 or f32, into master copies, or into the compute copies of what is frozen. `groups`
/// are allocated, and all that the folder should have, in the order of the forward pass.
///
/// Collective over the grid. Errors: those of find_tensors(); nothing is read then.
LoadCost load_pretrained(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const SafetensorsFolder& folder, const TensorNames& names,
                         const CheckpointReader::Progress& progress = {});

/// The same of a checkpoint's master copies, whatever grid wrote it. What is read is not yet known
/// to the other ranks: publish_values() follows. Not collective. Errors: those of CheckpointSource.
LoadCost load_parameters(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const CheckpointReader& reader,
                         const CheckpointReader::Progress& progress = {});

}  // namespace axonn
