#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/model/model.h"
#include "axonn/storage/parameter_source.h"

namespace axonn {

/// Where load() puts one kind of values of a group's parameters.
struct Destination {
  ParameterGroup* group = nullptr;  ///< allocated
  std::string kind = "master";      ///< as checkpoints call it
  float* buffer = nullptr;          ///< (P) on the device, for an optimizer; null: the parameters
};

/// The parameters of groups as files know them.
std::vector<StoredParameter> stored_parameters(std::span<ParameterGroup* const> groups);

/// Reads this rank's slices from files of any format, a few MiB at a time, and makes the new
/// parameters known to the other ranks. They go into master copies, or into the compute copies of
/// frozen groups; bf16 goes into bf16 unchanged. Collective over the grid. Throws UsageError, the
/// same on all ranks, as the source does; values are then partly set. `progress` is called with
/// the bytes of this rank.
LoadCost load(const Context& ctx, std::span<const Destination> destinations,
              ParameterSource& source, const Progress& progress = {});

/// Sets all parameters of a model with this config to those at config.path, or to initial values
/// from ctx.seed. Adapters are read from config.lora.path, or get initial values. `trained`: the
/// groups that are trained, or were before they were frozen. Collective. Throws as load() does,
/// and UsageError if the files are not of this model.
LoadCost initialise(const Context& ctx, Model& model, std::span<ParameterGroup* const> trained,
                    const ModelConfig& config, const Progress& progress = {});
/// Does the same for the other groups only: those of the base model of adapters, which a checkpoint
/// of a run does not hold. Does nothing without adapters. Collective.
LoadCost initialise_frozen(const Context& ctx, Model& model,
                           std::span<ParameterGroup* const> trained, const ModelConfig& config,
                           const Progress& progress = {});

}  // namespace axonn
