#pragma once

#include <vector>

#include "axonn/network/nn/attention.h"
#include "axonn/network/nn/options.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// The D/2 frequencies of rotary positions, theta^(-2i/D), scaled. Pair i at position t is rotated
/// by t · frequency[i] radians. Throws if head_dim is odd.
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling);
/// The factor of cosines and sines: YaRN's attention_factor, else 1.
double rope_magnitude(const RopeScaling& scaling);

/// Rotary positions (Su et al., "RoFormer", 2021): rotates query and key heads by their token's
/// position, in pairs (i, i + D/2) as Hugging Face's models do. No communication: no head is cut.
class Rope {
 public:
  /// For heads of 2 · frequencies.size() columns, which are also multiplied by `magnitude`.
  explicit Rope(std::vector<double> frequencies, double magnitude = 1)
      : frequencies_(std::move(frequencies)), magnitude_(magnitude) {}

  /// Makes the table of so many positions, unless it has just these. To be called before a pass;
  /// does not communicate. Throws for a negative number.
  void prepare(const Context& ctx, std::int64_t positions);

  /// Returns qkv (R, (h + 2k)·D), as attention() takes it, with rotated queries and keys; in place
  /// if the caller moved it in. Throws if prepare() was called for another number of positions.
  Var operator()(const Context& ctx, Var qkv, const Heads& heads) const;

 private:
  void turn(const Context& ctx, const View& out, const View& inp, bool inverse,
            const View& positions) const;

  std::vector<double> frequencies_;
  double magnitude_;
  Tensor table_;  // (T, D) f32: cosines, then sines, times magnitude_
};

}  // namespace axonn
