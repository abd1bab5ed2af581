#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn::cuda {

/// `count` products whose operands are at equal distances: out + i · out_step, and so on.
struct BatchedMatmul {
  Matmul one = {};  ///< the first
  float scale = 1;  ///< factor of the product, not of the old out
  std::int64_t count = 1;
  std::int64_t out_step = 0, a_step = 0, b_step = 0;  ///< elements
};

/// Matrix products by cuBLASLt, or hipBLASLt on AMD GPUs, in f32 (without TF32) or bf16, with sums
/// in f32. cuBLASLt is column-major, so it computes the transposes of our row-major products.
///
/// cuBLASLt's heuristic is asked for algorithms when a product's shape, strides, types, alignment
/// and options first occur; its answer is kept. Products run on the compute stream, one after the
/// other, and share one workspace. Every algorithm gives the same bits on the same GPU every time.
class Products {
 public:
  explicit Products(Device& device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Throws if shapes or types do not fit Matmul's description, or if cuBLASLt refuses the product.
  void run(const Matmul& args);
  /// See Backend::fuses(): true if cuBLASLt has the epilogue for these operands and set_way() has
  /// not chosen "in parts".
  bool fuses(const Matmul& args);
  /// For attention. Does not check its arguments.
  void run(const BatchedMatmul& args);

  /// "cuBLASLt 13.0.2".
  static std::string library();
  /// The heuristic's first algorithms, "heuristic 1" (the default) and so on, for operands that
  /// begin at multiples of 256 bytes. A product with less aligned operands may have fewer; it then
  /// uses the last one. With an epilogue also "in parts": not fused.
  std::vector<std::string> ways(const MatmulShape& shape) const;
  bool set_way(const MatmulShape& shape, std::string_view way);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// out (R, C) += bias (1, C), each f32 or bf16. For epilogues that cuBLASLt does not have, such as
/// a bias whose type is not that of out.
void add_bias(Stream& stream, const View& out, const View& bias);

}  // namespace axonn::cuda
