#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/matmul/lanes.h"

namespace axonn::cuda {

/// `count` products whose operands are at equal distances: out + i · out_step, and so on.
struct BatchedMatmul {
  Matmul one = {};  ///< the first
  float scale = 1;  ///< factor of the product, not of the old out
  std::int64_t count = 1;
  std::int64_t out_step = 0, a_step = 0, b_step = 0;  ///< elements
  /// Whether M, or K if a is transposed, changes from call to call, as that of an expert.
  bool rows_vary = false;
  /// That the product is to use; 0: all of the GPU's. Ignored where the library cannot be told.
  int multiprocessors = 0;
};

/// How cuBLASLt, or hipBLASLt on AMD GPUs, computes products on the GPU that is current: for each
/// product its descriptors and algorithm. cuBLASLt is column-major, so it computes the transposes
/// of our row-major products.
///
/// cuBLASLt's heuristic is asked for algorithms when a product's shape, strides, types, alignment
/// (up to 16 bytes) and options first occur; its answer is kept.
class BlasPlans {
 public:
  BlasPlans();
  ~BlasPlans();
  BlasPlans(const BlasPlans&) = delete;
  BlasPlans& operator=(const BlasPlans&) = delete;

  /// Enqueues the products. Returns false, with nothing done, if cuBLASLt does not have, or
  /// refuses, the epilogue or bias; it is not asked again. Throws if it refuses a product without.
  ///
  /// If the rows vary, the heuristic is asked for them rounded up to a multiple of 64, and for the
  /// product itself only if that algorithm does not compute it.
  bool enqueue(const Lane& lane, const BatchedMatmul& args);
  /// Whether enqueue() computes the product with its epilogue, as far as is known, and set_way()
  /// has not chosen "in parts".
  bool fuses(const Matmul& args);

  /// "default", the heuristic's first algorithm for the operands of a call; then the algorithms
  /// that it knows for dense operands aligned to 16 bytes, by their configuration, as
  /// algorithm_name() writes it; with an epilogue also "in parts": not fused.
  std::vector<std::string> ways(const MatmulShape& shape) const;
  /// Accepts any algorithm that the library has for the product on this GPU, whether the heuristic
  /// knows it or not. Where it does not compute operands that are not dense, or aligned less, the
  /// default does, and there is a remark.
  bool set_way(const MatmulShape& shape, std::string_view way);

  /// What was computed in another way than was wanted, since the last call; each product once.
  std::vector<std::string> take_remarks();

  /// "cuBLASLt 13.0.2".
  static std::string library();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cuda
