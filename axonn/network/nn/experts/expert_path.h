#pragma once

#include <memory>
#include <vector>

#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// How the rows of a chunk travel to the experts of a layer and back. A chunk has r rows here,
/// which may be cut over x, of C/Gy columns; R on all ranks of x. Each row goes to k experts:
/// n = R · k routed rows are ordered by expert, then row. m of the routed rows, of all ranks that
/// share experts, belong to the experts here.
///
///                     whole          exchange    gather      back                  sum
///   one holder        gather over x  -           -           -                     sum over x
///   several           swap over x    exchange    gather x    scatter x, exchange   swap over x
///
/// A swap makes rows that are cut over x into columns that are, W = C/(Gx · Gy) of them, so that
/// every element crosses between holders once, and all ranks of x and y exchange the same counts.
/// With one holder W = C/Gy. Elements that a rank sends forward, and the same backward, if e ranks
/// share the experts evenly:
///
///   x         one holder: (Gx - 1) · 2 r·C/Gy; several: the swaps, 2 r·C/Gy · (Gx - 1)/Gx, and
///             2 m·C/Gy · (Gx - 1)/Gx; backward makes the experts' rows again from whole(), or
///             gather()
///   experts   2 n·W · (e - 1)/e
class ExpertPath {
 public:
  virtual ~ExpertPath() = default;

  /// (r, C/Gy) to (R, W).
  virtual Tensor whole(const Tensor& rows) const = 0;
  /// Routed rows (n, W) to those of the experts here, ordered by expert: (m, W).
  virtual Tensor exchange(const Tensor& routed) const = 0;
  /// (m, W) to (m, C/Gy).
  virtual Tensor gather(const Tensor& rows) const = 0;
  /// The experts' results, summands over x, (m, C/Gy) to routed rows (n, W).
  virtual Tensor back(const Tensor& results) const = 0;
  /// (R, W) to (r, C/Gy). With one holder the rows are summands over x.
  virtual Tensor sum(const Tensor& rows) const = 0;

  /// Whether exchange() communicates.
  virtual bool exchanges() const = 0;
  /// Rows of exchange() for each expert of this rank, in order.
  const std::vector<std::int64_t>& rows_of() const { return rows_of_; }
  std::int64_t rows() const;  ///< m

 protected:
  std::vector<std::int64_t> rows_of_;
};

/// The path of a chunk with this placement, of which counts (1, E) i32 routed rows, n together, go
/// to each expert. Waits for the counts. A device without values takes them as equal; this rank's
/// experts then get BalanceConfig::expected_load times as many. Collective over the ranks that
/// share experts.
std::unique_ptr<ExpertPath> make_expert_path(const Context& ctx, const Placement& placement,
                                             const Tensor& counts, std::int64_t routed_rows);

}  // namespace axonn
