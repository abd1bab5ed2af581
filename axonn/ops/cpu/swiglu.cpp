#include "axonn/ops/rowwise/swiglu.h"

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

void CpuBackend::swiglu(View out, View inp) {
  check_swiglu(out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(threads_, out.rows, out.cols, kTile,
                 rowwise::SwigluForward<T>{matrix<T>(out), matrix<const T>(inp), out.cols});
  });
}

void CpuBackend::swiglu_backward(View d_inp, View d_out, View inp) {
  check_swiglu_backward(d_inp, d_out, inp);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_tiles(threads_, d_out.rows, d_out.cols, kTile,
                 rowwise::SwigluBackward<T>{matrix<T>(d_inp), matrix<const T>(d_out),
                                            matrix<const T>(inp), d_out.cols});
  });
}

}  // namespace axonn::cpu
