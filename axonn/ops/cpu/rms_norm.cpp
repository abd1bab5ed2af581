#include "axonn/ops/rowwise/rms_norm.h"

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

namespace {

int width(const View& view) { return static_cast<int>(view.cols); }

/// f32 or bf16.
void check_values(const Checker& check, const char* name, const View& view) {
  check.compute_type(name, view);
  check.shape(name, view, view.rows, view.cols);
}

/// `view` must be as `inp` is.
void check_like(const Checker& check, const char* name, const View& view, const View& inp) {
  check.type(name, view, {inp.dtype});
  check.shape(name, view, inp.rows, inp.cols);
}

/// Returns how many heads there are.
int check_head_norm(const Checker& check, const HeadNorm& args) {
  check_values(check, "inp", args.inp);
  check_values(check, "weight", args.weight);
  const std::int64_t D = args.weight.cols;
  check.shape("weight", args.weight, 1, D);
  AXONN_CHECK(D > 0 && args.inp.cols % D == 0, check.operation, ": inp is ", args.inp,
              ", no whole heads of ", D);
  check.type("rstd", args.rstd, {DType::f32});
  check.shape("rstd", args.rstd, args.inp.rows, args.inp.cols / D);
  return static_cast<int>(args.inp.cols / D);
}

}  // namespace

void CpuBackend::moments_about_zero(View out, View moments, std::int64_t count) {
  const Checker check{"moments_about_zero"};
  for (const auto& [name, view] : {std::pair{"out", out}, {"moments", moments}}) {
    check.type(name, view, {DType::f32});
    check.shape(name, view, out.rows, 2);
  }
  launch_tiles(threads_, 1, out.rows, kTile,
               rowwise::MomentsAboutZero{matrix<float>(out), matrix<const float>(moments),
                                         static_cast<float>(count)});
}

void CpuBackend::rms_norm_sums(View out, View d_out, View inp, View weight, View stats) {
  const Checker check{"rms_norm_sums"};
  check_values(check, "inp", inp);
  check_like(check, "d_out", d_out, inp);
  check_values(check, "weight", weight);
  check.shape("weight", weight, 1, inp.cols);
  for (const auto& [name, view] : {std::pair{"out", out}, {"stats", stats}}) {
    check.type(name, view, {DType::f32});
    check.shape(name, view, inp.rows, 2);
  }
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
  const Checker check{"head_norm"};
  const int heads = check_head_norm(check, args);
  check_like(check, "out", args.out, args.inp);
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
  const Checker check{"head_norm_backward"};
  const HeadNorm& forward = args.forward;
  const int heads = check_head_norm(check, forward), D = width(forward.weight);
  const View& inp = forward.inp;
  check_like(check, "d_out", args.d_out, inp);
  check_like(check, "d_inp", args.d_inp, inp);
  const auto rstd = matrix<const float>(forward.rstd);
  with_type(inp.dtype, [&]<typename T>(T) {
    with_type(forward.weight.dtype, [&]<typename W>(W) {
      launch_rows(threads_, inp.rows, inp.cols,
                  rowwise::HeadNormBackward<T, W>{matrix<T>(args.d_inp),
                                                  matrix<const T>(args.d_out), matrix<const T>(inp),
                                                  forward.weight.as<const W>(), rstd, heads, D});
    });
  });
  if (!args.d_weight.data) return;
  check.type("d_weight", args.d_weight, {DType::f32});
  check.shape("d_weight", args.d_weight, 1, D);
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
