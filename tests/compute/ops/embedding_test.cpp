#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

TEST(Embedding, LooksUpItsRowsAndAddsTheirGradients) {
  const auto backend = test_backend();
  const std::int64_t T = 7, first = 10, V = 20;
  for (DType type : kModelTypes)
    for (std::int64_t C : {1, 17, 65, 768}) {
      const std::vector<std::int32_t> ids =
          random_ids("ids", 3 * T, 40);  // some below `first`, some beyond the table
      const Matrix table = random_values("table", V, C, type),
                   positions = random_values("positions", T, C, type),
                   dy = random_values("dy", 3 * T, C, type);
      const Operand out(3 * T, C, type, 3), bare(3 * T, C, type), rows(table, type, 1),
          where(positions, type, 2), id_view(ids), d_out(dy, type, 5),
          d_table(Matrix(V, C, 1), DType::f32, 2), d_positions(Matrix(T, C, 1), DType::f32);
      backend->run(ops::Embedding{
          .out = out, .ids = id_view, .table = rows, .first = first, .learned = where});
      backend->run(ops::Embedding{.out = bare, .ids = id_view, .table = rows, .first = first});
      backend->run(ops::EmbeddingBackward{d_table, d_out, id_view, first});
      backend->run(ops::PositionsBackward{d_positions, d_out});

      Matrix want(3 * T, C), want_bare(3 * T, C), want_table(V, C, 1), want_positions(T, C, 1);
      for (std::int64_t r = 0; r < 3 * T; ++r)
        for (std::int64_t c = 0; c < C; ++c) {
          const std::int64_t id = ids[r] - first;
          const bool here = id >= 0 && id < V;
          want_bare(r, c) = here ? table(id, c) : 0;
          want(r, c) = want_bare(r, c) + positions(r % T, c);
          if (here) want_table(id, c) += dy(r, c);
          want_positions(r % T, c) += dy(r, c);
        }
      EXPECT_TRUE(close(out, want, stored(type, 2 * rounding(DType::f32))));
      EXPECT_TRUE(close(bare, want_bare, {}));  // a copy is exact
      // At most 21 additions of numbers below 1 to 1.
      const Tolerance sums{22 * 22 * rounding(DType::f32), 0};
      EXPECT_TRUE(close(d_table, want_table, sums));
      EXPECT_TRUE(close(d_positions, want_positions, sums));
    }
}

TEST(Embedding, AddsTheGradientsOfMoreRowsAndColumnsThanABlockOfAGpuHasThreads) {
  const auto backend = test_backend();
  // A block compares 2,048 ids at once, and has 4,096 columns.
  for (const auto& [R, C] :
       {std::pair<std::int64_t, std::int64_t>{300, 33}, {4500, 12}, {9, 4200}}) {
    const std::int64_t V = 3;
    std::vector<std::int32_t> ids(R);
    Matrix dy(R, C), want(V, C);
    for (std::int64_t r = 0; r < R; ++r) {
      ids[r] = static_cast<std::int32_t>(r * r % V);
      for (std::int64_t c = 0; c < C; ++c) {
        dy(r, c) = static_cast<double>((7 * r + c) % 11) - 5;  // so that sums are exact
        want(ids[r], c) += dy(r, c);
      }
    }
    const Operand d_out(dy, DType::f32), d_table(Matrix(V, C), DType::f32), id_view(ids);
    backend->run(ops::EmbeddingBackward{d_table, d_out, id_view, 0});
    EXPECT_TRUE(close(d_table, want, {})) << R << " x " << C;
  }
}

TEST(Embedding, AddsTheLearnedRowsOfExplicitPositions) {
  const auto backend = test_backend();
  for (DType type : kModelTypes) {
    const Matrix table = random_values("table", 5, 17, type),
                 learned = random_values("learned", 4, 17, type);
    const std::vector<std::int32_t> ids{0, 4, 7, 2, 2, 1}, positions{3, 0, 1, 1, 0, 2};
    const Operand out(6, 17, type), rows(table, type), where(learned, type);
    backend->run(ops::Embedding{.out = out,
                                .ids = Operand(ids),
                                .table = rows,
                                .learned = where,
                                .positions = Operand(positions)});
    Matrix want(6, 17);
    for (std::int64_t r = 0; r < 6; ++r)
      for (std::int64_t c = 0; c < 17; ++c)
        want(r, c) = (ids[r] < 5 ? table(ids[r], c) : 0) + learned(positions[r], c);
    EXPECT_TRUE(close(out, want, stored(type, 2 * rounding(DType::f32))));
  }
}

TEST(Embedding, RefusesIdsThatAreNotOnePerRow) {
  const Operand out(4, 2, DType::f32), table(9, 2, DType::f32), ids(std::vector<std::int32_t>(3));
  expect_refusal("embedding: ids is (1,3) i32, want (1,4)",
                 ops::Embedding{.out = out, .ids = ids, .table = table});
}
