#pragma once

#include <functional>

#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

using Forward = std::function<Var(const Context&, const Var&)>;

/// f(ctx, inp) of which backward keeps only the input: the rest is computed again when it is
/// needed. Any piece of a forward pass may be wrapped; the losses do not change by a bit.
Var checkpoint(const Context& ctx, const Var& inp, const Forward& f);

/// Which passes of a function read its parameters. An embedding's backward only adds to gradients.
enum class ReadIn { both_passes, forward };

/// Calls f(ctx) with the group's parameters gathered, now and, if it reads them then, when its
/// backward runs, and sends their gradients on their way after that.
void with_parameters(const Context& ctx, ParameterGroup& group,
                     const std::function<void(const Context&)>& f,
                     ReadIn read_in = ReadIn::both_passes);

/// The same for the end of a model, whose backward follows at once: f may add to its parameters'
/// gradients while it runs, as CrossEntropy does, and they stay gathered until it is through.
void with_head(const Context& ctx, ParameterGroup& group,
               const std::function<void(const Context&)>& f);

/// f(ctx, inp) with the group's parameters, recomputed in backward where ctx.recompute asks: one
/// block of a model.
Var run_block(const Context& ctx, ParameterGroup& group, const Var& inp, const Forward& f);

}  // namespace axonn
