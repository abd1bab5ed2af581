#include "axonn/ops/rowwise/rotary.h"

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

void CpuBackend::rotary_embedding(const RotaryEmbedding& args) {
  check_rotary_embedding(args);
  const View &inp = args.inp, &table = args.table;
  const auto D = static_cast<int>(table.cols), heads = static_cast<int>(inp.cols / D);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(threads_, inp.rows, inp.cols,
                rowwise::RotaryKernel<T>{matrix<T>(args.out), matrix<const T>(inp),
                                         matrix<const float>(table), table.rows, heads, D,
                                         args.inverse ? -1.0f : 1.0f,
                                         args.positions.as<const std::int32_t>()});
  });
}

}  // namespace axonn::cpu
