#include <tuple>

#include "axonn/ops/cuda/cuda_backend.cuh"
#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/layer_norm.h"
#include "axonn/ops/rowwise/rms_norm.h"

namespace axonn::cuda {

namespace {

int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace

void CudaBackend::row_moments(View out, View inp) {
  check_row_moments(out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(stream(), inp.rows, inp.cols,
                rowwise::RowMoments<T>{matrix<float>(out), matrix<const T>(inp), width(inp)});
  });
}

void CudaBackend::add_moments(View out, View moments, View a, View b) {
  check_add_moments(out, moments, a, b);
  with_type(out.dtype, [&]<typename T>(T) {
    launch_rows(stream(), out.rows, out.cols,
                rowwise::AddMoments<T>{matrix<T>(out), matrix<float>(moments), matrix<const T>(a),
                                       matrix<const T>(b), width(out)});
  });
}

void CudaBackend::combine_moments(View out, View moments, std::int64_t count, float eps) {
  const std::int64_t pieces = check_combine_moments(out, moments, count);
  if (pieces == 0) return;
  launch_tiles(stream(), 1, out.rows, kTile,
               rowwise::CombineMoments{matrix<float>(out), matrix<const float>(moments), out.rows,
                                       pieces, static_cast<float>(count), eps});
}

void CudaBackend::layer_norm(View out, View inp, View weight, View bias, View stats) {
  check_layer_norm({"layer_norm", inp, weight, stats}, out, bias);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), inp.rows, inp.cols,
                  rowwise::LayerNormForward<T, W>{matrix<T>(out), matrix<const T>(inp),
                                                  weight.as<const W>(), bias.as<const W>(),
                                                  matrix<const float>(stats), width(inp)});
    });
  });
}

void CudaBackend::layer_norm_sums(View out, View d_out, View inp, View weight, View stats) {
  check_norm_sums({"layer_norm_sums", inp, weight, stats}, out, d_out);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), inp.rows, inp.cols,
                  rowwise::LayerNormSums<T, W>{matrix<float>(out), matrix<const T>(d_out),
                                               matrix<const T>(inp), weight.as<const W>(),
                                               matrix<const float>(stats), width(inp)});
    });
  });
}

void CudaBackend::layer_norm_backward(const NormBackward& args) {
  check_layer_norm_backward(args);
  const View& inp = args.inp;
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(args.weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), inp.rows, inp.cols,
                  rowwise::LayerNormBackward<T, W>{
                      matrix<T>(args.d_inp), matrix<const T>(args.d_out), matrix<const T>(inp),
                      args.weight.as<const W>(), matrix<const float>(args.stats),
                      matrix<const float>(args.sums), matrix<const T>(args.residual), width(inp),
                      static_cast<float>(args.width)});
    });
  });
}

void CudaBackend::layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                             View stats) {
  check_layer_norm_weight_backward({"layer_norm_weight_backward", inp, d_weight, stats}, d_bias,
                                   d_out);
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock), C = inp.cols;
  float* memory = scratch_.take<float>(2 * blocks * C);
  const Matrix<float> a{memory, C}, b{memory + blocks * C, C};
  with_type(inp.dtype, [&]<typename T>(T) {
    const rowwise::WeightTerm term{matrix<const float>(stats)};
    const std::tuple both{matrix<const T>(d_out), matrix<const T>(inp)};
    if (d_bias.data)
      launch_column_partials(stream(), inp.rows, C,
                             rowwise::ColumnPartialsTwo<rowwise::WeightAndBiasTerms, T, T>{
                                 a, b, inp.rows, {term}, both});
    else
      launch_column_partials(
          stream(), inp.rows, C,
          rowwise::ColumnPartials<rowwise::WeightTerm, T, T>{a, inp.rows, term, both});
  });
  launch_add_rows(stream(), d_weight.as<float>(), a, blocks, C);
  if (d_bias.data) launch_add_rows(stream(), d_bias.as<float>(), b, blocks, C);
}

void CudaBackend::moments_about_zero(View out, View moments, std::int64_t count) {
  check_moments_about_zero(out, moments);
  launch_tiles(stream(), 1, out.rows, kTile,
               rowwise::MomentsAboutZero{matrix<float>(out), matrix<const float>(moments),
                                         static_cast<float>(count)});
}

void CudaBackend::rms_norm_sums(View out, View d_out, View inp, View weight, View stats) {
  check_norm_sums({"rms_norm_sums", inp, weight, stats}, out, d_out);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), inp.rows, inp.cols,
                  rowwise::RmsNormSums<T, W>{matrix<float>(out), matrix<const T>(d_out),
                                             matrix<const T>(inp), weight.as<const W>(),
                                             matrix<const float>(stats), width(inp)});
    });
  });
}

void CudaBackend::head_norm(const HeadNorm& args) {
  const int heads = check_head_norm(args);
  with_type(args.inp.dtype, [&]<typename T>(T) {
    with_type(args.weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), args.inp.rows, args.weight.cols,
                  rowwise::HeadNormForward<T, W>{
                      matrix<T>(args.out), matrix<const T>(args.inp), args.weight.as<const W>(),
                      matrix<float>(args.rstd), heads, width(args.weight), args.eps});
    });
  });
}

void CudaBackend::head_norm_backward(const HeadNormBackward& args) {
  const int heads = check_head_norm_backward(args);
  const HeadNorm& forward = args.forward;
  const int D = width(forward.weight);
  const View& inp = forward.inp;
  const auto rstd = matrix<const float>(forward.rstd);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(forward.weight.dtype, [&]<typename W>(W) {
      launch_rows(stream(), inp.rows, D,
                  rowwise::HeadNormBackwardKernel<T, W>{
                      matrix<T>(args.d_inp), matrix<const T>(args.d_out), matrix<const T>(inp),
                      forward.weight.as<const W>(), rstd, heads, D});
    });
  });
  if (!args.d_weight.data) return;
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock);
  const Matrix<float> partial{scratch_.take<float>(blocks * D), D};
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(stream(), blocks, D,
                rowwise::HeadNormWeightPartials<T>{partial, matrix<const T>(args.d_out),
                                                   matrix<const T>(inp), rstd, inp.rows, heads, D});
  });
  launch_add_rows(stream(), args.d_weight.as<float>(), partial, blocks, D);
}

}  // namespace axonn::cuda
