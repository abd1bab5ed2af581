#include "axonn/ops/rowwise/rotary.h"

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

void CpuBackend::rotary_embedding(const RotaryEmbedding& args) {
  const Checker check{"rotary_embedding"};
  const View &inp = args.inp, &table = args.table;
  check.compute_type("inp", inp);
  check.shape("inp", inp, inp.rows, inp.cols);
  check.type("out", args.out, {inp.dtype});
  check.shape("out", args.out, inp.rows, inp.cols);
  check.type("table", table, {DType::f32});
  check.shape("table", table, table.rows, table.cols);
  AXONN_CHECK(table.rows > 0 && (args.positions.data || inp.rows % table.rows == 0),
              "rotary_embedding: inp ", inp, " is no whole sequences of ", table.rows,
              " positions, as table ", table, " has");
  if (args.positions.data) {
    check.type("positions", args.positions, {DType::i32});
    check.shape("positions", args.positions, 1, inp.rows);
  }
  AXONN_CHECK(table.cols > 0 && table.cols % 2 == 0 && inp.cols % table.cols == 0,
              "rotary_embedding: inp ", inp, " is no whole heads of table's width, ", table,
              ", which must be even");
  const auto D = static_cast<int>(table.cols), heads = static_cast<int>(inp.cols / D);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch_rows(threads_, inp.rows, inp.cols,
                rowwise::RotaryEmbedding<T>{matrix<T>(args.out), matrix<const T>(inp),
                                            matrix<const float>(table), table.rows, heads, D,
                                            args.inverse ? -1.0f : 1.0f,
                                            args.positions.as<const std::int32_t>()});
  });
}

}  // namespace axonn::cpu
