#include "axonn/ops/rowwise/swiglu.h"

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

namespace {

/// inp (R, 2F), and `half` (R, F) of its type.
void check_swiglu(const Checker& check, const View& inp, const char* name, const View& half) {
  check.compute_type("inp", inp);
  check.shape("inp", inp, inp.rows, inp.cols);
  AXONN_CHECK(inp.cols % 2 == 0, check.operation, ": inp is ", inp, ", want as many gates as ups");
  check.type(name, half, {inp.dtype});
  check.shape(name, half, inp.rows, inp.cols / 2);
}

}  // namespace

void CpuBackend::swiglu(View out, View inp) {
  check_swiglu({"swiglu"}, inp, "out", out);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(threads_, out.rows, out.cols, kTile,
                 rowwise::SwigluForward<T>{matrix<T>(out), matrix<const T>(inp), out.cols});
  });
}

void CpuBackend::swiglu_backward(View d_inp, View d_out, View inp) {
  const Checker check{"swiglu_backward"};
  check_swiglu(check, inp, "d_out", d_out);
  check.type("d_inp", d_inp, {inp.dtype});
  check.shape("d_inp", d_inp, inp.rows, inp.cols);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(threads_, d_out.rows, d_out.cols, kTile,
                 rowwise::SwigluBackward<T>{matrix<T>(d_inp), matrix<const T>(d_out),
                                            matrix<const T>(inp), d_out.cols});
  });
}

}  // namespace axonn::cpu
