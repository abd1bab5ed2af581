// Changes the rounding of oneDNN's products, to find out whether a test depends on rounding.
//
//   AXONN_PERTURB_SEED=7 LD_PRELOAD=build/dev/tests/libperturb_products.so PROGRAM
//
// After each product this library changes the last bit of about half of the f32 results and of one
// in a thousand bf16 results. Whether a result changes depends on a hash of its bits and the seed.
// So equal results stay equal, bitwise comparisons still hold, and each seed gives another
// rounding. Without the variable it changes nothing. oneDNN does not run products of few rows
// (axonn/compute/ops/cpu/matmul/row_dots.h), so these keep their rounding. scripts/perturb-tests.sh
// runs tests under this library.
#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>

#include "axonn/compute/ops/cpu/matmul/onednn.h"

namespace {

using Execute = dnnl_status_t (*)(const_dnnl_primitive_t, dnnl_stream_t, int,
                                  const dnnl_exec_arg_t*);

constexpr std::uint64_t kBf16Period = 1000;

/// The finalizer of SplitMix64.
std::uint64_t hash(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Whether a value may be changed: zeros, subnormal values, infinity and NaN are kept, so that
/// masked values stay masked.
bool is_ordinary(std::uint32_t exponent) { return exponent != 0 && exponent != 0xff; }

void perturb(std::uint32_t& bits, std::uint64_t seed) {
  if (is_ordinary(bits >> 23 & 0xff)) bits ^= hash(seed << 32 ^ bits) & 1;
}

void perturb(std::uint16_t& bits, std::uint64_t seed) {
  if (is_ordinary(bits >> 7 & 0xff) && hash(seed << 32 ^ bits) % kBf16Period == 0) bits ^= 1;
}

template <typename Bits>
void perturb(void* data, const axonn::onednn::MatrixLayout& at, std::uint64_t seed) {
  for (std::int64_t r = 0; r < at.rows; ++r)
    for (std::int64_t c = 0; c < at.cols; ++c)
      perturb(static_cast<Bits*>(data)[r * at.row_stride + c * at.col_stride], seed);
}

bool is_product(const_dnnl_primitive_t primitive) {
  const_dnnl_primitive_desc_t desc = nullptr;
  dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
  return dnnl_primitive_get_primitive_desc(primitive, &desc) == dnnl_success &&
         dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind) == dnnl_success &&
         kind == dnnl_matmul;
}

void perturb_result(const dnnl_exec_arg_t& argument, std::uint64_t seed) {
  if (argument.arg != DNNL_ARG_DST) return;
  const dnnl::memory result(argument.memory, true);  // true: the caller owns it
  const auto layout = axonn::onednn::layout_of(result.get_desc());
  void* const data = result.get_data_handle();
  if (layout.type == dnnl::memory::data_type::f32) perturb<std::uint32_t>(data, layout, seed);
  if (layout.type == dnnl::memory::data_type::bf16) perturb<std::uint16_t>(data, layout, seed);
}

}  // namespace

extern "C" dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                                dnnl_stream_t stream, int count,
                                                const dnnl_exec_arg_t* arguments) {
  static const auto execute = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  static const char* const seed = std::getenv("AXONN_PERTURB_SEED");
  const dnnl_status_t status = execute(primitive, stream, count, arguments);
  if (seed == nullptr || status != dnnl_success || !is_product(primitive)) return status;
  for (int i = 0; i < count; ++i) perturb_result(arguments[i], std::strtoull(seed, nullptr, 10));
  return status;
}
