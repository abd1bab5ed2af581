#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn::cpu {

/// Matrix products by oneDNN, cut into panels of the result. One thread computes a panel, and the
/// panels do not depend on the number of threads. So neither do the bits of a result, on any
/// instruction set (oneDNN's own threading may cut K by it), and the operand that a primitive packs
/// stays in cache. product_plan.h chooses the panels. If the processor has no bf16 products,
/// a panel's operands are converted to f32. row_dots.h computes products of few rows.
///
/// A primitive is made the first time that its shape, strides, types and options occur, and kept;
/// after that a product allocates no buffers.
class Products {
 public:
  explicit Products(int threads);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Throws if shapes or types do not fit Matmul's description, or if oneDNN refuses the product.
  void run(const Matmul& args);

  /// "oneDNN 2.6.3 with AVX2": the library and the instruction set that it uses.
  static std::string library();
  /// As Backend::matmul_ways() and Backend::set_matmul_way().
  static std::vector<std::string> ways(const MatmulShape& shape);
  bool set_way(const MatmulShape& shape, std::string_view way);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "2.6.3": the version of oneDNN.
std::string library_version();

/// The best instruction set that oneDNN uses on this processor, in words: "AVX2", "AVX-512",
/// "AVX-512 with bf16 products". oneDNN's environment variable DNNL_MAX_CPU_ISA (AVX2, AVX512_CORE,
/// ...) lowers it.
std::string library_instructions();

/// Whether oneDNN multiplies bf16 by instructions of the processor. Without these it refuses bf16
/// (AVX2) or emulates it at a fraction of the speed of f32 (AVX-512).
bool library_multiplies_bf16();

/// The names that limit_library_instructions() accepts, the smallest set first: "avx2", "avx512",
/// "avx512-bf16".
std::span<const std::string_view> instruction_limits();

/// Makes oneDNN use no instructions beyond this set, as on an older processor. Applies to the whole
/// process; call it before any product. Throws if the name is not in instruction_limits() or a
/// product ran already.
void limit_library_instructions(std::string_view name);

}  // namespace axonn::cpu
