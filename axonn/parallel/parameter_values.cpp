// Sets the values of a group's parameters: initial ones, or those that a caller has read.
#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/base/random.h"
#include "axonn/parallel/parameters.h"

namespace axonn {

void ParameterGroup::initialise(const Context& ctx, std::uint64_t seed) {
  AXONN_CHECK(!compute_.empty(), name_, ": initialise() before allocate()");
  constexpr std::int64_t kAtOnce = 1 << 20;  // elements in host memory
  std::vector<float> host;
  for (const auto& [spec, slice] : piece_slices_) {
    const Random random(seed, spec->name);
    const std::int64_t width = spec->layout.cols;
    const double mean = spec->init_mean, std = spec->init_std;
    const Slice at = slice;
    for (std::int64_t first = at.begin; first < at.end; first += kAtOnce) {
      host.resize(std::min(kAtOnce, at.end - first));
      float* out = host.data();
#pragma omp parallel for
      for (std::int64_t e = first; e < first + std::ssize(host); ++e) {
        const std::int64_t index = (at.row + e / at.cols) * width + at.col + e % at.cols;
        out[e - first] = static_cast<float>(std == 0 ? mean : mean + std * random.normal(index));
      }
      set_values(ctx, at.offset + first - at.begin, host);
    }
  }
  publish_values(ctx);
}

void ParameterGroup::set_values(const Context& ctx, std::int64_t offset,
                                std::span<const float> values) {
  if (!master_.empty()) {
    const View to = master().col_range(offset, std::ssize(values));
    return ctx.arena.device().copy_from_host(to.data, values.data(), std::ssize(values) * 4);
  }
  std::vector<bf16> rounded(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) put(rounded[i], values[i]);
  set_values(ctx, offset, rounded);
}

void ParameterGroup::set_values(const Context& ctx, std::int64_t offset,
                                std::span<const bf16> values) {
  AXONN_CHECK(takes_bf16(), name_, ": got bf16 values, wanted f32 for the master copy");
  gathered_.wait();  // an unused prefetch may still be reading
  const View to = piece_of_compute().col_range(offset, std::ssize(values));
  ctx.arena.device().copy_from_host(to.data, values.data(), std::ssize(values) * 2);
}

void ParameterGroup::publish_values(const Context& ctx) {
  if (!master_.empty() && ctx.dtype != DType::f32) ctx.backend.cast(piece_of_compute(), master());
  publish(ctx);
}

}  // namespace axonn
