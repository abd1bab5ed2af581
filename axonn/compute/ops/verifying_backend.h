#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/ops/checking_backend.h"
#include "axonn/compute/ops/saved_values.h"

namespace axonn {

/// Sums over rows of a result that a product is added to, before that.
struct ResultSums {
  std::vector<double> values, sizes;  ///< blocks of rows x N; sizes are of absolute values
};

/// Compares sums over the rows of each product with those that its operands give (Huang and
/// Abraham, "Algorithm-Based Fault Tolerance for Matrix Operations", 1984). Where they differ by
/// more than rounding can, it computes the product again, with a remark, and throws Error if they
/// still do.
/// For memory of the host. The operands must stay as they are while the product runs. Not compared
/// are sums that are not finite, attention, and products that read codes.
///
/// In f32 a result that is wrong by 5 % of a usual one is always found with K = 768, by half of one
/// with 4,096; in bf16 by a quarter. No rounding is taken for a fault. Reads both operands and the
/// result once more, and multiplies the sums of each 32 rows of a by b in double.
class VerifyingBackend final : public CheckingBackend {
 public:
  VerifyingBackend(std::unique_ptr<Backend> inner, int threads, std::string rank)
      : CheckingBackend(std::move(inner), std::move(rank)), threads_(threads) {}
  void product(const Matmul& args) override;
  void products(std::span<const Matmul> all) override;

 private:
  void verified(std::span<const Matmul> all, const std::function<void()>& run);
  /// What is wrong with the first of them that is; "" if none is.
  std::string fault_of(std::span<const Matmul> all) const;

  int threads_;
  std::vector<ResultSums> before_ = {};
  SavedValues added_to_ = {};
};

}  // namespace axonn
