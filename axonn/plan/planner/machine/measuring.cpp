#include "axonn/plan/planner/machine/measuring.h"

#include <algorithm>

#include "axonn/foundation/base/clock.h"

namespace axonn {

double seconds_of_one(Backend& backend, double seconds, const std::function<void()>& run) {
  Stream& stream = backend.device().compute();
  run();  // the library prepares its kernel
  stream.synchronize();
  const double start = now_seconds();
  double taken = 0;
  std::int64_t calls = 0;
  for (std::int64_t more = 1; taken < seconds; more = calls) {  // twice as many each time
    for (std::int64_t i = 0; i < more; ++i) run();
    stream.synchronize();
    calls += more;
    taken = now_seconds() - start;
  }
  return taken / static_cast<double>(calls);
}

Tensor filled(Backend& backend, Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype) {
  const std::vector<float> row(cols, 0.01f);
  Tensor source(arena, 1, cols, DType::f32), matrix(arena, rows, cols, dtype);
  backend.device().copy_from_host(source.view().data, row.data(), source.bytes());
  for (std::int64_t r = 0; r < rows; ++r)
    backend.run(ops::Cast{matrix.view().row_range(r, 1), source.view()});
  return matrix;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace axonn
