#pragma once

#include <cstdint>

#include "axonn/tensor/tensor.h"

namespace axonn {

/// Calls f with a value of the element type. The caller has checked that it is f32 or bf16.
template <typename F>
void with_type(DType dtype, F f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else
    f(float{});
}

/// The same for two element types.
template <typename F>
void with_types(DType a, DType b, F f) {
  with_type(a, [&]<typename A>(A) { with_type(b, [&]<typename B>(B) { f(A{}, B{}); }); });
}

/// Makes each view one long row if all are contiguous: narrow rows would make narrow tiles.
template <typename... Views>
void flatten(Views&... views) {
  if (!(views.contiguous() && ...)) return;
  const auto one_row = [](View& v) {
    v.cols = v.stride = v.count();
    v.rows = 1;
  };
  (one_row(views), ...);
}

/// The number of tiles of `width` that cover `cols`.
inline std::int64_t tiles_of(std::int64_t cols, int width) { return (cols + width - 1) / width; }

}  // namespace axonn
