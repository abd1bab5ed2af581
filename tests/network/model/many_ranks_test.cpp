#include <gmock/gmock.h>

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(ManyRanks, FiveHundredAndTwelveThreadsTrainLikeOneRank) {
  ModelConfig config = tiny_config(4, true);
  config.layers = 1;
  config.positions = 4;
  TinyRun run{.sequences = 512, .positions = 4, .steps = 1, .make_model = model_of(config)};
  const TinyTrace one = run_tiny(run);
  for (const GridShape& grid : {GridShape{4, 2, 8, 8}, GridShape{1, 1, 8, 64}}) {
    SCOPED_TRACE("grid " + to_string(grid));
    run.grid = grid;
    EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "");
  }
}
