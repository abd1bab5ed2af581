#pragma once

#include <optional>
#include <vector>

#include "axonn/parallel/attention.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// Llama 3.1's change of the frequencies, so that a model trained on sequences of
/// `original_positions` learns longer ones: with wavelength 2 pi / f,
///
///   below original_positions / high_freq_factor    f
///   above original_positions / low_freq_factor     f / factor
///   between                                        (1 - s) · f / factor + s · f,
///       s = (original_positions / wavelength - low_freq_factor) / (high_freq_factor -
///       low_freq_factor)
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_positions = 8192;
};

/// The D/2 frequencies of rotary positions: pair i of position t turns by t · frequency[i] radians.
/// theta to the -2i/D, scaled where asked. Errors: head_dim is odd.
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const std::optional<RopeScaling>& scaling);

/// Rotary positions (Su et al., "RoFormer", 2021): query and key heads are turned by the position
/// of their token, pair (i, i + D/2) as in Hugging Face's models. No communication: heads lie over
/// x.
class Rope {
 public:
  /// Turns heads of 2 · frequencies.size() columns.
  explicit Rope(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {}

  /// Makes the table of so many positions, unless it is the one at hand. To be called before a
  /// pass, on every rank by itself.
  void prepare(const Context& ctx, std::int64_t positions);

  /// qkv (R, (h + 2k)·D), as attention() takes it, with its queries and keys turned: in place where
  /// the caller gave it away. Errors: prepare() was for other rows.
  Var operator()(const Context& ctx, Var qkv, const Heads& heads) const;

 private:
  void turn(const Context& ctx, const View& out, const View& inp, bool inverse,
            const View& positions) const;

  std::vector<double> frequencies_;
  Tensor table_;  // (T, D) f32: cosines, then sines
};

}  // namespace axonn
