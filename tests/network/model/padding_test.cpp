#include <atomic>

#include <gmock/gmock.h>

#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// Elements of the rank's pieces that belong to no parameter, and how many of them are not zero.
struct Padding {
  std::int64_t count = 0, nonzero = 0;
};

Padding padding_of(const ParameterGroup& group) {
  std::vector<bool> used(group.piece_size());
  for (const auto& [parameter, slice] : group.piece_slices())
    for (std::int64_t i = 0; i < slice.count(); ++i) used[slice.offset + i] = true;
  Padding padding;
  const float* master = group.master().as<float>();
  for (std::int64_t i = 0; i < group.piece_size(); ++i) {
    if (used[i]) continue;
    ++padding.count;
    padding.nonzero += master[i] != 0;
  }
  return padding;
}

}  // namespace

TEST(Padding, StaysZeroThroughTraining) {
  // Padding of 251 tokens over 4, of 4 key-value heads over 3 (one rank reads two, so the others
  // reserve room for two), and at the ends of flat buffers.
  for (const GridShape& grid : {GridShape{4, 2, 1, 1}, GridShape{3, 1, 2, 1}, GridShape{8, 1, 1, 1},
                                GridShape{2, 1, 2, 2}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      std::atomic<std::int64_t> count = 0, nonzero = 0;
      TinyRun run{.grid = grid, .steps = 3, .dtype = dtype, .make_model = tiny_gpt(4, true)};
      run.after = [&](const Context&, Model& model) {
        for (const ParameterGroup* group : model.groups()) {
          const Padding padding = padding_of(*group);
          count += padding.count;
          nonzero += padding.nonzero;
        }
      };
      run_tiny(run);
      EXPECT_GT(count, 0) << "grid " << to_string(grid) << " has no padding";
      EXPECT_EQ(nonzero, 0) << "of " << count << " on grid " << to_string(grid);
    }
  }
}
