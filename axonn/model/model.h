#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "axonn/model/config.h"
#include "axonn/nn/embedding.h"
#include "axonn/parallel/block.h"

namespace axonn {

/// A language model that the trainer can train: groups of parameters and a loss. It is written as
/// for one device; the Context says on which grid it runs.
class Model {
 public:
  virtual ~Model() = default;

  /// Every group, in the order of the forward pass.
  virtual std::vector<ParameterGroup*> groups() = 0;

  /// Adds the sum of this rank's token losses to total (1, 1) f64; with ctx.tape, records the
  /// gradient of scale · that sum.
  virtual void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) = 0;

  /// Returns (R, 2) f32, a row for each of this rank's targets: its loss in nats, and 1 if no token
  /// is likelier, else 0. Both are 0 for a negative target. Ranks that differ only in x or y have
  /// the same targets. ctx must have no tape.
  virtual Tensor target_losses(const Context& ctx, const Tokens& tokens) = 0;

  /// Logits (n, V/Gx) f32 of the tokens that follow n of the rows. ctx must have no tape. With
  /// ctx.cache, the rows' sequences may have begun in earlier passes.
  virtual Tensor next_logits(const Context& ctx, const Tokens& tokens,
                             std::span<const std::int64_t> rows) = 0;

  virtual std::int64_t vocab() const = 0;
};

/// The groups that are trained: all, or only those of the adapters if the model has any.
std::vector<ParameterGroup*> trained_groups(Model& model);

/// Makes this rank's part of a model from a resolved config. Throws UsageError if the grid cannot
/// cut a size.
using ModelMaker = std::function<std::unique_ptr<Model>(const ModelConfig&, const Grid&)>;

/// The ModelMaker of this library's families.
std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid);

}  // namespace axonn
