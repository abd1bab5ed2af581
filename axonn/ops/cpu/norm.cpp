#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/layer_norm.h"

namespace axonn::cpu {

namespace {

int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace

void CpuBackend::row_moments(View out, View inp) {
  check_row_moments(out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(threads_, inp.rows, inp.cols,
                rowwise::RowMoments<T>{matrix<float>(out), matrix<const T>(inp), width(inp)});
  });
}

void CpuBackend::add_moments(View out, View moments, View a, View b) {
  check_add_moments(out, moments, a, b);
  with_type(out.dtype, [&]<typename T>(T) {
    launch_rows(threads_, out.rows, out.cols,
                rowwise::AddMoments<T>{matrix<T>(out), matrix<float>(moments), matrix<const T>(a),
                                       matrix<const T>(b), width(out)});
  });
}

void CpuBackend::combine_moments(View out, View moments, std::int64_t count, float eps) {
  const std::int64_t pieces = check_combine_moments(out, moments, count);
  if (pieces == 0) return;
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::CombineMoments{matrix<float>(out), matrix<const float>(moments), out.rows,
                                       pieces, static_cast<float>(count), eps});
}

void CpuBackend::layer_norm(View out, View inp, View weight, View bias, View stats) {
  check_layer_norm({"layer_norm", inp, weight, stats}, out, bias);
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
  check_norm_sums({"layer_norm_sums", inp, weight, stats}, out, d_out);
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
  check_layer_norm_backward(args);
  const View& inp = args.inp;
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
  check_layer_norm_weight_backward({"layer_norm_weight_backward", inp, d_weight, stats}, d_bias,
                                   d_out);
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
