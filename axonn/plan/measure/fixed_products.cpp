#include "axonn/plan/measure/fixed_products.h"

#include <algorithm>
#include <array>
#include <utility>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

/// Returns random values in [-1, 1): some chips are faster on zeros.
Tensor random_matrix(const Context& ctx, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kPattern = 65521;  // repeated; a prime, so that no two rows are equal
  const Random random(1, "bench");
  Tensor pattern = ctx.empty(1, kPattern, DType::f32), all = ctx.empty(1, rows * cols, ctx.dtype);
  std::vector<float> host(kPattern);
  for (std::int64_t i = 0; i < kPattern; ++i)
    host[i] = static_cast<float>(2 * random.uniform(i) - 1);
  ctx.device().copy_from_host(pattern.view().data, host.data(), pattern.bytes());
  for (std::int64_t i = 0; i < all.cols(); i += kPattern) {
    const std::int64_t n = std::min(kPattern, all.cols() - i);
    ctx.backend.run(ops::Cast{all.view().col_range(i, n), pattern.view().col_range(0, n)});
  }
  return all.reshape(rows, cols);
}

}  // namespace

PeakProduct::PeakProduct(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k)
    : ctx_(ctx),
      out_(ctx.empty(m, n, ctx.dtype)),
      a_(random_matrix(ctx, m, k)),
      b_(random_matrix(ctx, n, k)),
      flops_(2.0 * static_cast<double>(m * n * k)) {}

void PeakProduct::run() {
  Stream& stream = ctx_.backend.device().compute();
  stream.synchronize();
  const double start = now_seconds();
  ctx_.backend.matmul({.out = out_.view(), .a = a_.view(), .b = b_.view(), .b_transposed = true});
  stream.synchronize();
  seconds_.push_back(now_seconds() - start);
}

double PeakProduct::median_seconds() {
  std::ranges::sort(seconds_);
  return seconds_[seconds_.size() / 2];
}

std::vector<PeakProduct> fixed_products(const Context& ctx) {
  std::vector<PeakProduct> products;
  for (const auto& [m, n, k] : {std::array{1024, 2304, 768}, std::array{1024, 768, 3072},
                                std::array{1024, 3072, 768}, std::array{2048, 2048, 2048}})
    products.emplace_back(ctx, m, n, k);
  // A device that needs less than this for the last one is not yet at its peak.
  constexpr double kLongEnough = 5e-3;
  constexpr std::int64_t kLarge = 8192;
  for (int i = 0; i < 3; ++i) products.back().run();  // the first may load code
  if (products.back().median_seconds() < kLongEnough)
    products.emplace_back(ctx, kLarge, kLarge, kLarge);
  const bool gpu = !ctx.backend.device().uuid().empty();
  if (ctx.dtype == DType::f32 || gpu) return products;
  // Operands of 16 bits can be multiplied as f32 as well, which some CPUs do faster. The peak is
  // the best of both.
  const Context as_floats(ctx.backend, ctx.arena(), ctx.grid);
  for (PeakProduct& product : fixed_products(as_floats)) products.push_back(std::move(product));
  return products;
}

}  // namespace axonn
