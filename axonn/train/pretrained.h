#pragma once

#include <functional>
#include <vector>

#include "axonn/model/model.h"
#include "axonn/storage/checkpoint/checkpoint.h"
#include "axonn/storage/safetensors/safetensors_folder.h"
#include "axonn/train/stored_tensors.h"

namespace axonn {

/// Reads parameters from a folder of safetensors. Every rank reads its own slices, a few MiB at a
/// time, in bf16, f16 or f32, into master copies, or into the compute copies of frozen groups.
/// `groups` must be allocated and be all groups that the folder should hold, in the order of the
/// forward pass.
///
/// Collective over the grid. Throws as find_tensors() does, before anything is read.
LoadCost load_pretrained(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const SafetensorsFolder& folder, const TensorNames& names,
                         const CheckpointReader::Progress& progress = {});

/// Reads parameters from a checkpoint's master copies, whatever grid wrote it. Other ranks do not
/// know the new values until publish_values() is called. Not collective. Throws as CheckpointSource
/// does.
LoadCost load_parameters(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const CheckpointReader& reader,
                         const CheckpointReader::Progress& progress = {});

/// Runs `load`, and makes damage that one rank meets a UsageError on all ranks of world, which
/// names that rank. Collective.
void agree_on_loading(Communicator& world, const CheckpointReader& reader,
                      const std::function<void()>& load);

}  // namespace axonn
