#pragma once

#include <cstdint>
#include <string_view>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

/// What differs between oneDNN 2 and 3: nothing else knows the version. Each function is a template
/// of the library's type, which makes the branch of the other version compile.
namespace axonn::onednn {

/// The operands of out = src · weights + bias; bias may be null.
struct MatmulOperands {
  dnnl::memory::desc src, weights;
  const dnnl::memory::desc* bias;
  dnnl::memory::desc out;
  /// Whether src is one row, or out one column, of elements that are not next to each other.
  bool strided_vector = false;
};

/// Plans a product; throws dnnl::error if the library has none for these operands.
template <typename Matmul = dnnl::matmul>
typename Matmul::primitive_desc plan_matmul(const MatmulOperands& of,
                                            const dnnl::primitive_attr& attributes,
                                            const dnnl::engine& engine) {
  using Plan = typename Matmul::primitive_desc;
  if constexpr (requires { typename Matmul::desc; }) {
    using Desc = typename Matmul::desc;
    return Plan(
        of.bias ? Desc(of.src, of.weights, *of.bias, of.out) : Desc(of.src, of.weights, of.out),
        attributes, engine);
  } else {
    Plan plan = of.bias ? Plan(engine, of.src, of.weights, *of.bias, of.out, attributes)
                        : Plan(engine, of.src, of.weights, of.out, attributes);
    // oneDNN 3.7's kernel "brg_matmul" takes the elements of such a vector to be adjacent.
    while (of.strided_vector && std::string_view(plan.impl_info_str()).starts_with("brg"))
      if (!plan.next_impl())
        throw dnnl::error(dnnl_unimplemented, "no kernel for a vector with a stride");
    return plan;
  }
}

/// Whether a copy of strided rows into this layout is to be trusted: oneDNN 3.7's kernel "jit:uni"
/// loses elements where a layout of blocks needs padding.
template <typename Desc = dnnl::memory::desc>
bool packs_into(const Desc& layout) {
  if constexpr (requires { layout.data.dims; })
    return true;
  else
    return layout.get_padded_dims() == layout.get_dims();
}

/// A set of instructions in words: "AVX2", "AVX-512 with bf16 products".
template <typename Isa = dnnl::cpu_isa>
const char* name_of(Isa isa) {
  if constexpr (requires { Isa::avx512_core_amx_fp16; }) {
    if (isa == Isa::avx2_vnni_2) return "AVX2 with VNNI, int8 and conversions of bf16";
    if (isa == Isa::avx512_core_fp16) return "AVX-512 with bf16 and f16 products";
    if (isa == Isa::avx512_core_amx_fp16) return "AVX-512 with AMX tiles (bf16, f16, int8)";
  }
  switch (isa) {
    case Isa::sse41:
      return "SSE4.1";
    case Isa::avx:
      return "AVX";
    case Isa::avx2:
      return "AVX2";
    case Isa::avx2_vnni:
      return "AVX2 with VNNI";
    case Isa::avx512_core:
      return "AVX-512";
    case Isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case Isa::avx512_core_bf16:
      return "AVX-512 with bf16 products";
    case Isa::avx512_core_amx:
      return "AVX-512 with AMX tiles (bf16, int8)";
    default:  // not an x86-64 processor, for which oneDNN has no names
      return "instructions that oneDNN does not name";
  }
}

/// A matrix: the elements from one row, and from one column, to the next.
struct MatrixLayout {
  std::int64_t rows, cols, row_stride, col_stride;
  dnnl::memory::data_type type;
};

/// The layout of a plain desc of two dims.
template <typename Desc = dnnl::memory::desc>
MatrixLayout layout_of(const Desc& desc) {
  if constexpr (requires { desc.data.dims; }) {
    const auto& strides = desc.data.format_desc.blocking.strides;
    return {desc.data.dims[0], desc.data.dims[1], strides[0], strides[1], desc.data_type()};
  } else {
    const auto dims = desc.get_dims(), strides = desc.get_strides();
    return {dims[0], dims[1], strides[0], strides[1], desc.get_data_type()};
  }
}

/// Makes oneDNN use one thread for calls from the current thread while this object exists. oneDNN
/// plans some primitives for as many threads as OpenMP has when they are made. Others (those of
/// AVX2, and bf16 without bf16 instructions) ask OpenMP when they run: in a parallel region of one
/// thread, which does not count as parallel, they would start threads of their own, and their sums
/// would depend on the number of threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace axonn::onednn
