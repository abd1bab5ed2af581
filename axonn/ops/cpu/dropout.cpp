#include "axonn/ops/rowwise/dropout.h"

#include <cmath>

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

void CpuBackend::dropout(const axonn::Dropout& args) {
  check_dropout(args);
  with_type(args.inp.dtype, [&]<typename T>(T) {
    launch_tiles(
        threads_, args.inp.rows, args.inp.cols, kTile,
        rowwise::DropoutKernel<T>{
            matrix<T>(args.out), matrix<const T>(args.inp), args.key,
            static_cast<std::uint64_t>(args.first_row), static_cast<std::uint32_t>(args.first_col),
            static_cast<std::uint32_t>(std::lround(args.probability * (1 << 24))),
            args.scale / (1 - args.probability)});
  });
}

}  // namespace axonn::cpu
