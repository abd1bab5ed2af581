#pragma once

#include <vector>

#include "axonn/model/model.h"
#include "axonn/nn/loss.h"
#include "axonn/nn/norm.h"

namespace axonn {

/// A Model that ends in a norm and an output layer over the vocabulary. Implements the losses and
/// logits; a model adds its groups and what comes before the norm.
class LanguageModel : public Model {
 public:
  void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) override;
  Tensor target_losses(const Context& ctx, const Tokens& tokens) override;
  Tensor next_logits(const Context& ctx, const Tokens& tokens,
                     std::span<const std::int64_t> rows) override;

 protected:
  /// The end of the model.
  struct Head {
    const Norm& norm;
    const CrossEntropy& output;
    std::vector<ParameterGroup*> groups;  ///< of both: two if the output is tied to the embedding
  };
  virtual Head head() = 0;

  /// Returns the norm's input.
  virtual Var hidden(const Context& ctx, const Tokens& tokens) = 0;

 private:
  template <typename F>
  void at_end(const Context& ctx, const Tokens& tokens, const F& f);
};

}  // namespace axonn
