#include "axonn/ops/rowwise/rms_norm.h"

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

namespace {

int width(const View& view) { return static_cast<int>(view.cols); }

}  // namespace

void CpuBackend::moments_about_zero(View out, View moments, std::int64_t count) {
  check_moments_about_zero(out, moments);
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::MomentsAboutZero{matrix<float>(out), matrix<const float>(moments),
                                         static_cast<float>(count)});
}

void CpuBackend::rms_norm_sums(View out, View d_out, View inp, View weight, View stats) {
  check_norm_sums({"rms_norm_sums", inp, weight, stats}, out, d_out);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::RmsNormSums<T, W>{matrix<float>(out), matrix<const T>(d_out),
                                             matrix<const T>(inp), weight.as<const W>(),
                                             matrix<const float>(stats), width(inp)});
    });
  });
}

void CpuBackend::head_norm(const HeadNorm& args) {
  const int heads = check_head_norm(args);
  with_type(args.inp.dtype, [&]<typename T>(T) {
    with_type(args.weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, args.inp.rows, args.inp.cols,
                  rowwise::HeadNormForward<T, W>{
                      matrix<T>(args.out), matrix<const T>(args.inp), args.weight.as<const W>(),
                      matrix<float>(args.rstd), heads, width(args.weight), args.eps});
    });
  });
}

void CpuBackend::head_norm_backward(const HeadNormBackward& args) {
  const HeadNorm& forward = args.forward;
  const int heads = check_head_norm_backward(args), D = width(forward.weight);
  const View& inp = forward.inp;
  const auto rstd = matrix<const float>(forward.rstd);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(forward.weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::HeadNormBackwardKernel<T, W>{
                      matrix<T>(args.d_inp), matrix<const T>(args.d_out), matrix<const T>(inp),
                      forward.weight.as<const W>(), rstd, heads, D});
    });
  });
  if (!args.d_weight.data) return;
  const std::int64_t blocks = tiles_of(inp.rows, rowwise::kRowBlock);
  const Matrix<float> partial{scratch_.take<float>(blocks * D), D};
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(threads_, blocks, inp.cols * rowwise::kRowBlock,
                rowwise::HeadNormWeightPartials<T>{partial, matrix<const T>(args.d_out),
                                                   matrix<const T>(inp), rstd, inp.rows, heads, D});
  });
  launch_add(threads_, blocks, D,
             rowwise::AddRow<float>{args.d_weight.as<float>(), {partial.data, partial.stride}});
}

}  // namespace axonn::cpu
