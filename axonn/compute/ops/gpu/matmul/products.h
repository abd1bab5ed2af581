#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/matmul/blas_plans.h"
#include "axonn/compute/ops/gpu/matmul/lanes.h"
#include "axonn/compute/tensor/arena.h"

namespace axonn::cuda {

/// Matrix products by cuBLASLt, or hipBLASLt on AMD GPUs, in f32 (without TF32) or bf16, with sums
/// in f32. They run on the compute stream, one after the other, and share one workspace, but for
/// those that are asked for together. Every algorithm gives the same bits on the same GPU every
/// time.
class Products {
 public:
  /// Runs on the compute stream of the arena's device, a GPU of so many multiprocessors, of which
  /// dense products leave those that are lent. The arena must outlive it.
  Products(Arena& arena, int multiprocessors)
      : arena_(arena), multiprocessors_(multiprocessors), lanes_(arena.device()) {}

  /// Returns false, with nothing done, if cuBLASLt refuses the product because of its epilogue,
  /// although its heuristic knew an algorithm; fuses() then is false from now on. If it refuses a
  /// bias, the bias is added after the product. Throws if shapes or types do not fit Matmul's
  /// description, or if cuBLASLt refuses the product otherwise.
  bool run(const Matmul& args);
  /// Computes independent products without epilogues, such as those of experts, on the compute
  /// stream and up to three others, each with a workspace. M, or K if a is transposed, may change
  /// from call to call, see BlasPlans::enqueue().
  void run(std::span<const Matmul> all);
  /// For attention. Does not check its arguments.
  void run(const BatchedMatmul& args);

  /// See Backend::fuses(): true if cuBLASLt has the epilogue for these operands and set_way() has
  /// not chosen "in parts".
  bool fuses(const Matmul& args) { return plans_.fuses(args); }
  /// See BlasPlans.
  std::vector<std::string> take_remarks() { return plans_.take_remarks(); }
  std::vector<std::string> ways(const MatmulShape& shape) const { return plans_.ways(shape); }
  bool set_way(const MatmulShape& shape, std::string_view way) {
    return plans_.set_way(shape, way);
  }

 private:
  bool run(const Lane& lane, const Matmul& args, bool rows_vary);

  Arena& arena_;
  int multiprocessors_;
  ProductLanes lanes_;
  BlasPlans plans_;
};

/// out (R, C) += bias (1, C), each f32, bf16 or f16. For epilogues that cuBLASLt does not have,
/// such as a bias whose type is not that of out.
void add_bias(Stream& stream, const View& out, const View& bias);

}  // namespace axonn::cuda
