#include "axonn/ops/rowwise/elementwise.h"

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/columns.h"

namespace axonn::cpu {

namespace {

template <typename F>
void unary(int threads, View out, View inp) {
  flatten(out, inp);
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(inp.dtype, [&]<typename In>(In) {
      launch_tiles(threads, out.rows, out.cols, even_tile(threads, out.cols),
                   rowwise::Unary<F, Out, In>{matrix<Out>(out), matrix<const In>(inp)});
    });
  });
}

template <typename F>
void binary(int threads, View out, View a, View b) {
  flatten(out, a, b);
  with_type(out.dtype, [&]<typename Out>(Out) {
    with_type(a.dtype, [&]<typename A>(A) {
      with_type(b.dtype, [&]<typename B>(B) {
        launch_tiles(threads, out.rows, out.cols, even_tile(threads, out.cols),
                     rowwise::Binary<F, Out, A, B>{matrix<Out>(out), matrix<const A>(a),
                                                   matrix<const B>(b)});
      });
    });
  });
}

}  // namespace

void CpuBackend::gelu(View out, View inp) {
  check_elementwise("gelu", out, "inp", inp);
  unary<rowwise::Gelu>(threads_, out, inp);
}

void CpuBackend::gelu_backward(View d_inp, View d_out, View inp) {
  check_elementwise("gelu_backward", d_inp, "d_out", d_out);
  check_elementwise("gelu_backward", d_inp, "inp", inp);
  binary<rowwise::GeluGradient>(threads_, d_inp, d_out, inp);
}

void CpuBackend::add(View out, View a, View b) {
  check_elementwise("add", out, "a", a);
  check_elementwise("add", out, "b", b);
  binary<rowwise::Add>(threads_, out, a, b);
}

void CpuBackend::cast(View out, View inp) {
  check_elementwise("cast", out, "inp", inp);
  unary<rowwise::Identity>(threads_, out, inp);
}

void CpuBackend::column_sum(View out, View inp) {
  check_column_sum(out, inp);
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock), C = inp.cols;
  const Matrix<float> partial{scratch_.take<float>(blocks * C), C};
  const auto term = [](std::int64_t) { return [](auto x) { return x; }; };
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_columns(
        threads_, inp.rows, C,
        rowwise::ColumnPartials<decltype(term), T>{partial, inp.rows, term, {matrix<const T>(inp)}},
        rowwise::AddRow<float>{out.as<float>(), {partial.data, partial.stride}});
  });
}

}  // namespace axonn::cpu
