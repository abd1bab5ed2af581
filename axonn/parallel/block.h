#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

using Forward = std::function<Var(const Context&, const Var&)>;

/// Activation checkpointing: f(ctx, inp) of which only the input is kept; backward runs f again.
/// Any part of a forward pass may be wrapped; the losses do not change by a bit.
Var checkpoint(const Context& ctx, const Var& inp, const Forward& f);

/// Which passes read the values of a group's parameters.
enum class ReadIn : std::uint8_t {
  both_passes,
  forward,  ///< backward does not, as an embedding's
  /// Both, and backward follows at once, as at the end of a model: parameters stay gathered until
  /// their backward is done, and f may add to their gradients while it runs, as CrossEntropy does.
  held,
};

/// Calls f(ctx) with the group's parameters gathered. With a tape, gathers them again for backward
/// if read_in says so, and starts the reduction of their gradients when the backward of f is done.
void with_parameters(const Context& ctx, ParameterGroup& group,
                     const std::function<void(const Context&)>& f,
                     ReadIn read_in = ReadIn::both_passes);

/// Whether this rank adds its summand to the gradient of a parameter, in the backward step of a
/// value that lies so. Along an axis of Layout::partial, each rank adds its own if the axis cuts
/// the value; else all have the same, and the first adds it alone. False if the parameter is
/// frozen.
bool adds_gradient(const Context& ctx, const Parameter& parameter, const Placement& placement);

/// Block `number` of a model, counted from 0: f(ctx, inp) with the parameters of the groups.
/// RunSettings::recompute says by the number what backward computes again; a model that gives its
/// blocks no numbers recomputes all of them alike. Throws Error without groups.
Var run_block(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
              const Forward& f, std::int64_t number = 0);
/// The same with one group.
Var run_block(const Context& ctx, ParameterGroup& group, const Var& inp, const Forward& f,
              std::int64_t number = 0);

}  // namespace axonn
