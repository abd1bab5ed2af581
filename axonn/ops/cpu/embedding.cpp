#include "axonn/ops/rowwise/embedding.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"

namespace axonn::cpu {

namespace {

void check_ids(const Checker& check, const char* name, const View& ids, std::int64_t rows) {
  check.type(name, ids, {DType::i32});
  check.shape(name, ids, 1, rows);
}

}  // namespace

void CpuBackend::embedding(const TokenEmbedding& args) {
  const Checker check{"embedding"};
  const View &out = args.out, &learned = args.learned;
  check.compute_type("out", out);
  check.shape("out", out, out.rows, out.cols);
  check_ids(check, "ids", args.ids, out.rows);
  check.type("table", args.table, {out.dtype});
  check.shape("table", args.table, args.table.rows, out.cols);
  if (learned.data) {
    check.type("learned", learned, {out.dtype});
    check.shape("learned", learned, learned.rows, out.cols);
    AXONN_CHECK(learned.rows > 0, "embedding: learned is ", learned, ", want rows");
  }
  if (args.positions.data) check_ids(check, "positions", args.positions, out.rows);
  with_type(out.dtype, [&]<typename T>(T) {
    const rowwise::EmbeddingForward<T> kernel{
        .out = matrix<T>(out),
        .ids = args.ids.as<const std::int32_t>(),
        .table = matrix<const T>(args.table),
        .learned = matrix<const T>(learned),
        .positions = args.positions.as<const std::int32_t>(),
        .first = args.first,
        .V = args.table.rows,
        .P = learned.rows,
        .R = out.rows,
        .C = static_cast<int>(out.cols),
    };
    launch_rows(threads_, out.rows, out.cols, kernel);
  });
}

void CpuBackend::embedding_backward(View d_table, View d_out, View ids, std::int64_t first) {
  const Checker check{"embedding_backward"};
  check.compute_type("d_out", d_out);
  check.shape("d_out", d_out, d_out.rows, d_out.cols);
  check_ids(check, "ids", ids, d_out.rows);
  check.type("d_table", d_table, {DType::f32});
  check.shape("d_table", d_table, d_table.rows, d_out.cols);
  with_type(d_out.dtype, [&]<typename T>(T) {
    const rowwise::EmbeddingBackward<T> kernel{
        .d_table = matrix<float>(d_table),
        .d_out = matrix<const T>(d_out),
        .ids = ids.as<const std::int32_t>(),
        .first = first,
        .V = d_table.rows,
        .R = d_out.rows,
        .C = static_cast<int>(d_out.cols),
    };
    const int parts = d_out.count() < kParallelElements ? 1 : threads_;
    const Team team{.far = d_out.count() > kNearElements};
    run_tiles(parts, 1, parts, 1, [&](const Team&, Tile tile) { kernel(team, tile.begin, parts); });
  });
}

void CpuBackend::positions_backward(View d_positions, View d_out) {
  const Checker check{"positions_backward"};
  check.compute_type("d_out", d_out);
  check.shape("d_out", d_out, d_out.rows, d_out.cols);
  check.type("d_positions", d_positions, {DType::f32});
  check.shape("d_positions", d_positions, d_positions.rows, d_out.cols);
  with_type(d_out.dtype, [&]<typename T>(T) {
    const rowwise::PositionsBackward<T> kernel{
        .d_positions = matrix<float>(d_positions),
        .d_out = matrix<const T>(d_out),
        .positions_count = d_positions.rows,
        .R = d_out.rows,
        .C = static_cast<int>(d_out.cols),
    };
    launch_rows(threads_, d_positions.rows, d_out.cols, kernel);
  });
}

}  // namespace axonn::cpu
