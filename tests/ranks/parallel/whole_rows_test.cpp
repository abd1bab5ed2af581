// Values of the rows of sequences that several ranks share.
#include "axonn/ranks/parallel/whole_rows.h"

#include <gmock/gmock.h>

#include "axonn/network/nn/tokens.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/stored_values.h"

using namespace axonn;
using testing::ElementsAreArray;

namespace {

constexpr std::int64_t kLength = 512, kSequences = 3;

/// The rows' numbers as tokens of sequences of two documents each, of which ranks have parts.
void check_on_ranks(int context, const SequenceCut& cut) {
  run_ranks(2 * context, [&](Communicator& world) {
    const Grid grid(world, {.z = 2 * context, .context = context});
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    Context ctx(*backend, arena, grid);
    ctx.own_scheduling().run.sequence_cut = cut;
    std::vector<std::int32_t> ids(kSequences * kLength), starts(ids.size());
    for (std::int64_t row = 0; row < std::ssize(ids); ++row) {
      ids[row] = static_cast<std::int32_t>(row);
      starts[row] = row % kLength < 300 ? 0 : 300;
    }
    const Tokens tokens = make_tokens(ctx, ids, ids, {kSequences, kLength}, {.starts = starts});
    const auto own = stored_values<std::int32_t>(ctx, tokens.ids);
    ASSERT_EQ(std::ssize(own), std::ssize(ids) / context);

    const WholeRows whole(ctx, tokens.rows);
    EXPECT_EQ(whole.positions(), kLength);
    EXPECT_THAT(whole.gather(own), ElementsAreArray(ids));
    std::vector<float> pairs, all, mine;
    for (const std::int32_t id : own) {
      mine.push_back(static_cast<float>(id));
      pairs.insert(pairs.end(), {static_cast<float>(id), static_cast<float>(-id)});
    }
    const std::vector<float> gathered = whole.gather(pairs, 2);
    for (std::int64_t row = 0; row < std::ssize(ids); ++row) {
      all.push_back(static_cast<float>(row));
      EXPECT_EQ(gathered[2 * row], static_cast<float>(row));
      EXPECT_EQ(gathered[2 * row + 1], static_cast<float>(-row));
    }
    EXPECT_THAT(whole.own(all), ElementsAreArray(mine));
  });
}

TEST(WholeRows, AreGatheredInTheOrderOfTheirSequencesAndCutAgain) {
  check_on_ranks(1, {});
  for (const int context : {2, 4}) {
    check_on_ranks(context, {.layout = ContextLayout::zigzag});
    check_on_ranks(context, {.layout = ContextLayout::balanced});
    check_on_ranks(context, {.layout = ContextLayout::window, .window = 64});
  }
}

}  // namespace
