#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

using Forward = std::function<Var(const Context&, const Var&)>;

/// Activation checkpointing: f(ctx, inp) of which only the input is kept; backward runs f again.
/// Any part of a forward pass may be wrapped; the losses do not change by a bit.
Var checkpoint(const Context& ctx, const Var& inp, const Forward& f);

/// Which passes read the values of a group's parameters.
enum class ReadIn : std::uint8_t {
  both_passes,
  forward,  ///< backward does not, as an embedding's
  /// The same, but a later part of the forward pass reads them, as a tied output layer does.
  forward_again,
  /// Both, and backward follows at once, as at the end of a model: parameters stay gathered until
  /// their backward is done, and the forward pass may add to their gradients, as CrossEntropy does.
  held,
};

/// The parameters of groups, gathered for a part of the forward pass, which release() ends:
///
///   GatheredWeights weights(ctx, group);
///   const Var out = layer(weights.context(), inp);
///   weights.release();
///
/// With a tape, backward gathers them again if ReadIn says so, unless they were kept (KeepWeights),
/// and starts the reduction of their gradients when it has left this part.
class GatheredWeights {
 public:
  /// Gathers the groups in their order.
  GatheredWeights(const Context& ctx, std::span<ParameterGroup* const> groups,
                  ReadIn read_in = ReadIn::both_passes);
  GatheredWeights(const Context& ctx, ParameterGroup& group, ReadIn read_in = ReadIn::both_passes);
  GatheredWeights(const GatheredWeights&) = delete;
  GatheredWeights& operator=(const GatheredWeights&) = delete;
  /// Without release(), as after an exception, frees the weights. The tape is of no use then.
  ~GatheredWeights();

  /// For the layers of this part. Its collectives have the name of the last group.
  const Context& context() const { return inside_; }
  /// Computes the lazy chunks that read the weights, and frees the weights unless they are held or
  /// kept.
  void release();

 private:
  void gather(ParameterGroup& group);
  bool held_for_backward() const { return held_ && inside_.tape; }

  bool held_;
  bool again_;     // backward reads the weights, too
  bool repeated_;  // a later part of this forward pass reads them, or its second run does
  std::vector<std::function<void()>> before_release_;
  Context inside_;
  std::vector<ParameterGroup*> groups_;  // which release() has to free
};

/// Keeps the weights of groups gathered while it lives, for passes without a tape; a pass gathers
/// none of them. Frozen ones may stay behind (KeepWeights::step). Collective over z.
class HeldWeights {
 public:
  HeldWeights(const Context& ctx, std::vector<ParameterGroup*> groups);
  HeldWeights(const HeldWeights&) = delete;
  HeldWeights& operator=(const HeldWeights&) = delete;
  ~HeldWeights();

 private:
  Context ctx_;
  std::vector<ParameterGroup*> groups_;
};

/// Whether this rank adds its summand to the gradient of a parameter, in the backward step of a
/// value that lies so. Along an axis of Layout::partial, each rank adds its own if the axis cuts
/// the value; else all have the same, and the first adds it alone. False if the parameter is
/// frozen.
bool adds_gradient(const Context& ctx, const Parameter& parameter, const Placement& placement);

/// Block `number` of a model, counted from 0: f(ctx, inp) with the parameters of the groups.
/// RunSettings::recompute says by the number what backward computes again; a model that gives its
/// blocks no numbers recomputes all of them alike. All collectives have the first group's name.
/// Throws Error without groups.
Var run_block(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
              const Forward& f, std::int64_t number = 0);
/// The same with one group.
Var run_block(const Context& ctx, ParameterGroup& group, const Var& inp, const Forward& f,
              std::int64_t number = 0);

}  // namespace axonn
