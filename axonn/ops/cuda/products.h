#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn::cuda {

/// `count` products whose operands lie at equal distances: out + i · out_step, and so on.
struct BatchedMatmul {
  Matmul one = {};  ///< the first
  float scale = 1;  ///< of the product, not of what is accumulated to
  std::int64_t count = 1;
  std::int64_t out_step = 0, a_step = 0, b_step = 0;  ///< elements
};

/// Matrix products by cuBLASLt, or on AMD's cards hipBLASLt, in f32 (without TF32) or bf16, with
/// sums in f32. Row-major products are computed as their transposes, which is how cuBLASLt's
/// columns see them.
///
/// What cuBLASLt's heuristic says of a product is asked when its shape, strides, types, alignment
/// and options are first seen, and kept. Products run on the compute stream, one after the other,
/// and share one workspace. Every algorithm gives the same bits on the same card every time.
class Products {
 public:
  explicit Products(Device& device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Errors: shapes or types that Matmul's description does not allow; what cuBLASLt refuses.
  void run(const Matmul& args);
  /// As Backend::fuses(): an epilogue that cuBLASLt has for these operands and that set_way() has
  /// not put aside.
  bool fuses(const Matmul& args);
  /// Not checked: for attention.
  void run(const BatchedMatmul& args);

  /// "cuBLASLt 13.0.2".
  static std::string library();
  /// The heuristic's first algorithms, "heuristic 1" (the default) and so on, as many as there are
  /// where all rows begin at multiples of 256 bytes. A product whose operands are aligned worse may
  /// have fewer, and takes the last of them then. With an epilogue also "in parts": not fused.
  std::vector<std::string> ways(const MatmulShape& shape) const;
  bool set_way(const MatmulShape& shape, std::string_view way);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// out (R, C) += bias (1, C), f32 and bf16: the epilogue that cuBLASLt does not have, where out and
/// bias are of different types.
void add_bias(Stream& stream, const View& out, const View& bias);

}  // namespace axonn::cuda
