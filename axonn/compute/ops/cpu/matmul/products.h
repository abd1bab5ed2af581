#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/matmul/row_dots.h"

namespace axonn::cpu {

/// Matrix products by oneDNN or tiled_matmul(), cut into panels of the result. One thread computes
/// a panel, and no bit of a result depends on the number of threads, on any instruction set:
/// oneDNN's panels do not (its own threading may cut K by it), and tiles give the same bits in all
/// panels. So, too, the operand that a primitive packs stays in cache. product_plan.h and
/// tiled_matmul.h choose the panels. If the processor has no bf16 products, a panel's operands are
/// converted to f32. row_dots.h computes products of few rows.
///
/// A primitive is made the first time that its shape, strides, types and options occur, and kept;
/// after that a product allocates no buffers. Those of an expert are for any number of rows,
/// because that changes from step to step.
class Products {
 public:
  explicit Products(int threads);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Throws if shapes or types do not fit Matmul's description, or if oneDNN refuses the product.
  void run(const Matmul& args);
  /// Backend::products(): all panels are shared among the threads. The plan of each is the default
  /// one. Does not check shapes and types.
  void run(std::span<const Matmul> all);

  /// As Backend::reads_codes(): false, too, for a shape for which set_way() chose oneDNN.
  bool reads_codes(const QuantizedMatmul& args) const;
  /// Throws if shapes or types do not fit QuantizedMatmul's description.
  void run(const QuantizedMatmul& args);

  /// With SumOrder::invariant, products whose b is stored (N, K) and whose a is not transposed are
  /// computed by rows_matmul(), however many rows they have.
  void set_order(SumOrder order);
  /// As Backend::set_integer_products(); not with SumOrder::invariant.
  void set_integers(bool value);

  /// "oneDNN 2.6.3 with AVX2": the library and the instruction set that it uses.
  static std::string library();
  /// As Backend::matmul_ways() and Backend::set_matmul_way().
  std::vector<std::string> ways(const MatmulShape& shape) const;
  bool set_way(const MatmulShape& shape, std::string_view way);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cpu
