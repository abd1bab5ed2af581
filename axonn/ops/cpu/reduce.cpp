#include "axonn/ops/rowwise/reduce.h"

#include <cmath>

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

template <template <typename> typename Partials, typename Sum>
void CpuBackend::reduce(const char* operation, View out, View inp) {
  check_reduction(operation, dtype_of<Sum>, out, inp);
  flatten(inp);
  const std::int64_t tiles = inp.rows * tiles_of(inp.cols, kTile);
  Sum* partial = scratch_.take<Sum>(tiles);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(threads_, inp.rows, inp.cols, kTile, Partials<T>{partial, matrix<const T>(inp)});
  });
  launch_tiles(1, 1, 1, 1, rowwise::AddPartials<Sum>{out.as<Sum>(), partial, tiles});
}

void CpuBackend::sum(View out, View inp) { reduce<rowwise::SumPartials, double>("sum", out, inp); }

void CpuBackend::squared_sum(View out, View inp) {
  reduce<rowwise::SquaredSumPartials, double>("squared_sum", out, inp);
}

void CpuBackend::count_nonfinite(View out, View inp) {
  reduce<rowwise::NonfinitePartials, std::int64_t>("count_nonfinite", out, inp);
}

void CpuBackend::clip_factor(View out, View squared_norm, float max_norm) {
  check_clip_factor(out, squared_norm);
  const double norm = std::sqrt(*squared_norm.as<double>());
  *out.as<float>() = max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

}  // namespace axonn::cpu
