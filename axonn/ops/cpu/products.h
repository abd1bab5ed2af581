#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn::cpu {

/// Matrix products by oneDNN, cut into panels of the result. A panel is computed by one thread, and
/// panels depend on the extents alone: so the bits of a result do not depend on the number of
/// threads on any instruction set (oneDNN's own threading cuts K by it), and the operand that a
/// primitive packs stays in cache. product_plan.h says which panels. Where the processor multiplies
/// no bf16, float_operands.h converts a panel's operands. Products of few rows are not oneDNN's but
/// few_rows.h's.
///
/// A primitive is made the first time its shape, strides, types and options are seen, and kept;
/// after that a product allocates no buffers.
class Products {
 public:
  explicit Products(int threads);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Errors: shapes or types that Matmul's description does not allow.
  void run(const Matmul& args);

  /// "oneDNN 2.6.3 with AVX2": the library and the instructions that it uses here.
  static std::string library();
  /// As Backend::matmul_ways() and Backend::set_matmul_way().
  static std::vector<std::string> ways(const MatmulShape& shape);
  bool set_way(const MatmulShape& shape, std::string_view way);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cpu
