#include "axonn/ops/rowwise/embedding.h"

#include <algorithm>

#include "axonn/ops/cpu/cpu_backend.h"
#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

void CpuBackend::embedding(const TokenEmbedding& args) {
  check_embedding(args);
  const View &out = args.out, &learned = args.learned;
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
  check_embedding_backward(d_table, d_out, ids);
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
  check_positions_backward(d_positions, d_out);
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
