#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/tensor/arena.h"

namespace axonn::cuda {

/// `count` products whose operands are at equal distances: out + i · out_step, and so on.
struct BatchedMatmul {
  Matmul one = {};  ///< the first
  float scale = 1;  ///< factor of the product, not of the old out
  std::int64_t count = 1;
  std::int64_t out_step = 0, a_step = 0, b_step = 0;  ///< elements
  /// Whether M, or K if a is transposed, changes from call to call, as that of an expert.
  bool rows_vary = false;
};

/// Matrix products by cuBLASLt, or hipBLASLt on AMD GPUs, in f32 (without TF32) or bf16, with sums
/// in f32. cuBLASLt is column-major, so it computes the transposes of our row-major products.
///
/// cuBLASLt's heuristic is asked for algorithms when a product's shape, strides, types, alignment
/// and options first occur; its answer is kept. Products run on the compute stream, one after the
/// other, and share one workspace, but for those that are asked for together. Every algorithm gives
/// the same bits on the same GPU every time.
class Products {
 public:
  /// Runs on the compute stream of the arena's device. The arena must outlive it.
  explicit Products(Arena& arena);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Returns false, with nothing done, if cuBLASLt refuses the product because of its epilogue,
  /// although its heuristic knew an algorithm; fuses() then is false from now on. If it refuses a
  /// bias, the bias is added after the product. Throws if shapes or types do not fit Matmul's
  /// description, or if cuBLASLt refuses the product otherwise.
  bool run(const Matmul& args);
  /// Computes independent products without epilogues, such as those of experts, on the compute
  /// stream and up to three others, each with a workspace. M, or K if a is transposed, may change
  /// from call to call: the heuristic is asked for it rounded up to a multiple of 64, and for the
  /// product itself only if cuBLASLt refuses that algorithm.
  void run(std::span<const Matmul> all);
  /// See Backend::fuses(): true if cuBLASLt has the epilogue for these operands and set_way() has
  /// not chosen "in parts".
  bool fuses(const Matmul& args);
  /// For attention. Does not check its arguments.
  void run(const BatchedMatmul& args);

  /// The epilogues that run() found to be refused since the last call; each shape once.
  std::vector<std::string> take_remarks();

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

/// The largest power of two, up to 256, that divides the address.
inline std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// cuBLASLt's workspace: the size that its manual recommends, and cuBLAS itself uses, on Hopper.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
/// The longest bias gradient that it computes, in bytes.
constexpr std::int64_t kSumBytes = std::int64_t{1} << 20;
/// Memory of a product, and of each product that runs at the same time.
constexpr std::int64_t kLaneBytes = kWorkspaceBytes + kSumBytes;

/// How many of so many independent products run at the same time. Products of few rows, such as
/// those of experts, each occupy a part of a GPU.
constexpr std::int64_t lanes_for(std::size_t products) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(products), 1, 4);
}

/// Elements from one row to the next; a matrix of a single row may have a smaller stride.
inline std::int64_t row_step(const View& view) { return std::max(view.stride, view.cols); }

/// Bytes of the vectors by which cuBLASLt's epilogues load their operands.
constexpr std::uint32_t kEpilogueVector = 16;

/// Whether cuBLASLt adds the bias itself: if it is of the result's type and aligned for vectors.
inline bool fuses_bias(const Matmul& args) {
  return args.bias.dtype == args.out.dtype && alignment_of(args.bias.data) >= kEpilogueVector;
}

/// The matrix of the result's size that the epilogue reads or writes; empty if there is none.
inline const View& auxiliary_of(const Matmul& args) {
  return args.gelu ? args.gelu_input : args.gelu_derivative_at;
}

/// Whether cuBLASLt may be asked for this product with its epilogue. It may still refuse.
///
/// GELU and its derivative only in bf16: cuBLASLt's is the tanh form, too, but its precision is not
/// documented, and results are compared in f32. Rows of the auxiliary matrix must begin at
/// multiples of 8 elements. cuBLASLt's bias gradient has the result's type, which must be f32.
inline bool may_fuse(const Matmul& args) {
  if (args.out.count() == 0 || args.a.count() == 0) return false;
  if (args.bias_gradient.data)
    return args.out.dtype == DType::f32 && !args.bias.data && !args.gelu &&
           !args.gelu_derivative_at.data &&
           args.bias_gradient.count() * bytes_of(DType::f32) <= kSumBytes;
  if (args.out.dtype != DType::bf16) return false;
  if (args.bias.data && !fuses_bias(args)) return false;
  const View& beside = auxiliary_of(args);
  return !beside.data ||
         (row_step(beside) % 8 == 0 && alignment_of(beside.data) >= kEpilogueVector);
}

}  // namespace axonn::cuda
