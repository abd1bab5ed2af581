#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/layer_norm.h"

namespace axonn::cpu {

namespace {

int width(const View& view) { return static_cast<int>(view.cols); }

/// inp (R, C), weight (1, C) and stats (R, 2), which all of LayerNorm's operations have.
void check_norm(const Checker& check, const View& inp, const View& weight, const View& stats) {
  check.compute_type("inp", inp);
  check.shape("inp", inp, inp.rows, inp.cols);
  check.compute_type("weight", weight);
  check.shape("weight", weight, 1, inp.cols);
  check.type("stats", stats, {DType::f32});
  check.shape("stats", stats, inp.rows, 2);
}

/// `view` must be as `inp` is.
void check_like(const Checker& check, const char* name, const View& view, const View& inp) {
  check.type(name, view, {inp.dtype});
  check.shape(name, view, inp.rows, inp.cols);
}

}  // namespace

void CpuBackend::row_moments(View out, View inp) {
  const Checker check{"row_moments"};
  check.compute_type("inp", inp);
  check.shape("inp", inp, inp.rows, inp.cols);
  check.type("out", out, {DType::f32});
  check.shape("out", out, inp.rows, 2);
  AXONN_CHECK(inp.cols > 0 || inp.rows == 0, "row_moments: inp is ", inp,
              "; a row of nothing has no mean");
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(threads_, inp.rows, inp.cols,
                rowwise::RowMoments<T>{matrix<float>(out), matrix<const T>(inp), width(inp)});
  });
}

void CpuBackend::add_moments(View out, View moments, View a, View b) {
  const Checker check{"add_moments"};
  check.compute_type("out", out);
  check.shape("out", out, out.rows, out.cols);
  check_like(check, "a", a, out);
  check_like(check, "b", b, out);
  check.type("moments", moments, {DType::f32});
  check.shape("moments", moments, out.rows, 2);
  AXONN_CHECK(out.cols > 0 || out.rows == 0, "add_moments: out is ", out,
              "; a row of nothing has no mean");
  with_type(out.dtype, [&]<typename T>(T) {
    launch_rows(threads_, out.rows, out.cols,
                rowwise::AddMoments<T>{matrix<T>(out), matrix<float>(moments), matrix<const T>(a),
                                       matrix<const T>(b), width(out)});
  });
}

void CpuBackend::combine_moments(View out, View moments, std::int64_t count, float eps) {
  const Checker check{"combine_moments"};
  check.type("moments", moments, {DType::f32});
  check.type("out", out, {DType::f32});
  check.shape("out", out, out.rows, 2);
  if (out.rows == 0) return;
  const std::int64_t pieces = moments.rows / out.rows;
  check.shape("moments", moments, pieces * out.rows, 2);
  AXONN_CHECK(pieces >= 1 && count >= 1, "combine_moments: ", pieces, " pieces of ", count,
              " elements each, want at least one of both");
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::CombineMoments{matrix<float>(out), matrix<const float>(moments), out.rows,
                                       pieces, static_cast<float>(count), eps});
}

void CpuBackend::layer_norm(View out, View inp, View weight, View bias, View stats) {
  const Checker check{"layer_norm"};
  check_norm(check, inp, weight, stats);
  check_like(check, "out", out, inp);
  if (bias.data) check_like(check, "bias", bias, weight);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::LayerNormForward<T, W>{matrix<T>(out), matrix<const T>(inp),
                                                  weight.as<const W>(), bias.as<const W>(),
                                                  matrix<const float>(stats), width(inp)});
    });
  });
}

void CpuBackend::layer_norm_sums(View out, View d_out, View inp, View weight, View stats) {
  const Checker check{"layer_norm_sums"};
  check_norm(check, inp, weight, stats);
  check_like(check, "d_out", d_out, inp);
  check.type("out", out, {DType::f32});
  check.shape("out", out, inp.rows, 2);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::LayerNormSums<T, W>{matrix<float>(out), matrix<const T>(d_out),
                                               matrix<const T>(inp), weight.as<const W>(),
                                               matrix<const float>(stats), width(inp)});
    });
  });
}

void CpuBackend::layer_norm_backward(const NormBackward& args) {
  const Checker check{"layer_norm_backward"};
  const View& inp = args.inp;
  check_norm(check, inp, args.weight, args.stats);
  check_like(check, "d_inp", args.d_inp, inp);
  check_like(check, "d_out", args.d_out, inp);
  if (args.residual.data) check_like(check, "residual", args.residual, inp);
  check.type("sums", args.sums, {DType::f32});
  check.shape("sums", args.sums, inp.rows, 2);
  AXONN_CHECK(args.width >= inp.cols && args.width > 0, "layer_norm_backward: width ", args.width,
              " of rows whose piece is ", inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(args.weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::LayerNormBackward<T, W>{
                      matrix<T>(args.d_inp), matrix<const T>(args.d_out), matrix<const T>(inp),
                      args.weight.as<const W>(), matrix<const float>(args.stats),
                      matrix<const float>(args.sums), matrix<const T>(args.residual), width(inp),
                      static_cast<float>(args.width)});
    });
  });
}

void CpuBackend::layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                            View stats) {
  const Checker check{"layer_norm_weight_backward"};
  check_norm(check, inp, d_weight, stats);
  check.type("d_weight", d_weight, {DType::f32});
  check_like(check, "d_out", d_out, inp);
  if (d_bias.data) check_like(check, "d_bias", d_bias, d_weight);
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock), C = inp.cols;
  float* memory = scratch_.take<float>(2 * blocks * C);
  const Matrix<float> a{memory, C}, b{memory + blocks * C, C};
  with_type(inp.dtype, [&]<typename T>(T) {
    const rowwise::WeightTerm term{matrix<const float>(stats)};
    const std::tuple both{matrix<const T>(d_out), matrix<const T>(inp)};
    const rowwise::AddRow<float> weight{d_weight.as<float>(), {a.data, a.stride}},
        bias{d_bias.as<float>(), {b.data, b.stride}};
    if (d_bias.data)
      launch_columns(threads_, inp.rows, C,
                     rowwise::ColumnPartialsTwo<rowwise::WeightAndBiasTerms, T, T>{
                         a, b, inp.rows, {term}, both},
                     [&](const Team& team, Tile tile) {
                       weight(team, tile);
                       bias(team, tile);
                     });
    else
      launch_columns(threads_, inp.rows, C,
                     rowwise::ColumnPartials<rowwise::WeightTerm, T, T>{a, inp.rows, term, both},
                     weight);
  });
}

}  // namespace axonn::cpu
