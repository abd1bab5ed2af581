#pragma once

#include <utility>
#include <vector>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/options.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// The D/2 frequencies of rotary positions, theta^(-2i/D), scaled; D is the number of columns of a
/// head that rotate. Pair i at position t is rotated by t · frequency[i] radians. With longrope,
/// those of short sequences. Throws if D is odd.
std::vector<double> rope_frequencies(std::int64_t D, double theta, const RopeScaling& scaling);
/// The same of sequences longer than original_positions, with longrope.
std::vector<double> long_rope_frequencies(std::int64_t D, double theta, const RopeScaling& scaling);
/// The factor of cosines and sines: attention_factor of YaRN and longrope, else 1.
double rope_magnitude(const RopeScaling& scaling);

/// The frequencies of sequences of more than `than` positions.
struct LongFrequencies {
  std::vector<double> frequencies = {};  ///< empty: the same as of others
  std::int64_t than = 0;
};

/// A factor of queries that grows with their position p:
/// 1 + growth · ln(1 + floor((p + offset) / positions)).
/// Source: Meta's Llama 4 (attention temperature), 2025.
struct QueryGrowth {
  double growth = 0;
  std::int64_t positions = 1;
  std::int64_t offset = 0;
};

/// Rotary positions (Su et al., "RoFormer", 2021): rotates query and key heads by their token's
/// position, in pairs of their first D columns, of (i, i + D/2), as most of Hugging Face's models
/// do, or of neighbours. No communication: no head is cut.
class Rope {
 public:
  struct Options {
    double magnitude = 1;  ///< factor of the columns that rotate
    LongFrequencies longer = {};
    bool neighbours = false;   ///< whether pairs are (2i, 2i + 1)
    QueryGrowth queries = {};  ///< of the columns that rotate
  };

  /// Rotates D = 2 · frequencies.size() columns of a head.
  explicit Rope(std::vector<double> frequencies) : Rope(std::move(frequencies), Options()) {}
  Rope(std::vector<double> frequencies, Options options)
      : frequencies_(std::move(frequencies)), options_(std::move(options)) {}

  /// Makes the table for a pass of these rows, unless it is there. To be called before the pass;
  /// does not communicate.
  void prepare(const Context& ctx, const Rows& rows);

  /// Returns qkv (R, (h + 2k)·D), as attention() takes it, with rotated queries and keys; in place
  /// if the caller moved it in. Throws if prepare() was called for another number of positions.
  Var operator()(const Context& ctx, Var qkv, const Heads& heads) const;
  /// Rotates heads of head_dim columns, queries or keys of these rows, in place.
  enum class Of { queries, keys };
  void rotate(const Context& ctx, const Chunk& rows, const View& heads, std::int64_t head_dim,
              Of of) const;

 private:
  /// The frequencies that a table has.
  enum class Kept { none, shorter, longer, both };

  Kept needed(const Rows& rows) const;
  bool queries_grow() const { return options_.queries.growth > 0; }
  /// The table of `count` rows, of positions in turn; with the factor of queries, or without.
  Tensor table(const Context& ctx, std::int64_t count, std::int64_t positions, bool queries) const;
  /// The queries and keys of `out`, from those of inp.
  void turn(const Context& ctx, const LocalHeads& at, const View& out, const View& inp,
            bool inverse, const View& positions) const;
  /// The rows of a table with these.
  static std::int64_t rows_of(Kept kept, const Rows& rows) {
    return (kept == Kept::both ? 2 : 1) * rows.most_positions();
  }
  /// The number of each row's row in the table; empty: its position in the sequence.
  const Tensor& numbers(const Rows& rows) const {
    return options_.longer.frequencies.empty() || rows.rotary.empty() ? rows.position : rows.rotary;
  }

  std::vector<double> frequencies_;
  Options options_;
  Kept kept_ = Kept::none;
  /// (T, D) f32: cosines, then sines, times the magnitude. With both frequencies (2T, D), rows of
  /// longer sequences last.
  Tensor table_;
  Tensor query_table_;  ///< the same of queries, if they grow
};

}  // namespace axonn
