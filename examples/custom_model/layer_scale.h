#pragma once

#include <string>

#include <axonn/axonn.h>

/// A learned factor for each channel: out = inp · gamma, inp (R, C) with its columns over y,
/// gamma (C), which starts at `init`. A layer with parameters that the library does not have: all
/// of its arithmetic is here. Source: Touvron et al., "Going deeper with image transformers", 2021
/// (arXiv 2103.17239).
class LayerScale {
 public:
  struct Options {
    std::int64_t width = 0;  ///< C
    double init = 0.1;
  };
  LayerScale(axonn::ParameterGroup& group, const std::string& name, Options options);

  /// Throws Error if the columns of inp are not those of gamma on this rank.
  axonn::Var operator()(const axonn::Context& ctx, const axonn::Var& inp) const;

 private:
  axonn::Chunk forward(const axonn::Context& ctx, const axonn::Chunk& inp) const;
  void backward(const axonn::Context& ctx, const axonn::Chunk& inp,
                const axonn::Tensor& d_out) const;

  const axonn::Parameter& gamma_;
};
