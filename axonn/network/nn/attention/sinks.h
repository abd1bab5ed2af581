#pragma once

#include <string>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/ranks/parallel/parameters.h"

namespace axonn {

/// Attention sinks, as in gpt-oss: a learned number of each query head that is a further score of
/// its softmax, without a value. Computed after attention, from its result and the log of its sum
/// of exponentials, so that it goes with every kernel of attention.
///
///   global          dims      this rank holds                 cut over
///   name.sinks      (H)       those of its query heads        x; heads cut over y use a part
///
/// Source: "gpt-oss-120b & gpt-oss-20b model card", 2025.
class Sinks {
 public:
  /// Declares name.sinks.
  Sinks(ParameterGroup& group, const std::string& name, const Heads& heads, double init_std);

  /// Attention without sinks: out (R, h·D), which is scaled in place, and stats (R, h) f32. `total`
  /// becomes stats with the sinks, from which the kernels compute all gradients but theirs.
  struct Forward {
    View out, stats, total;
  };
  void add(const Context& ctx, const LocalHeads& at, const Placement& placement,
           const Forward& of) const;

  /// Adds to the gradient of the sinks; out and total are add()'s.
  struct Backward {
    View d_out, out, total;
  };
  void backward(const Context& ctx, const LocalHeads& at, const Placement& placement,
                const Backward& of) const;

  bool frozen() const { return parameter_->frozen(); }

 private:
  View part(const Context& ctx, const LocalHeads& at, const Placement& placement,
            const View& all) const;

  const Parameter* parameter_;
};

}  // namespace axonn
