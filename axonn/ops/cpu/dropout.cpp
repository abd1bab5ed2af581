#include "axonn/ops/rowwise/dropout.h"

#include <cmath>

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

void CpuBackend::dropout(const axonn::Dropout& args) {
  const Checker check{"dropout"};
  check.compute_type("inp", args.inp);
  check.shape("inp", args.inp, args.inp.rows, args.inp.cols);
  check.type("out", args.out, {args.inp.dtype});
  check.shape("out", args.out, args.inp.rows, args.inp.cols);
  AXONN_CHECK(args.probability >= 0 && args.probability < 1, "dropout: probability ",
              args.probability, ", wanted 0 or more and less than 1");
  with_type(args.inp.dtype, [&]<typename T>(T) {
    launch_tiles(
        threads_, args.inp.rows, args.inp.cols, kTile,
        rowwise::Dropout<T>{matrix<T>(args.out), matrix<const T>(args.inp), args.key,
                            static_cast<std::uint64_t>(args.first_row),
                            static_cast<std::uint32_t>(args.first_col),
                            static_cast<std::uint32_t>(std::lround(args.probability * (1 << 24))),
                            args.scale / (1 - args.probability)});
  });
}

}  // namespace axonn::cpu
