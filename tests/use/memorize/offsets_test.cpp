#include <gmock/gmock.h>

#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/memorize/recite.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(Offsets, GoWithEachLengthButTheWholePrompt) {
  ReciteOptions options{.prompt_lengths = {kWholePrompt, 20, 1000}};
  add_offsets(options, std::vector<std::int64_t>{0, 30});
  EXPECT_THAT(options.prompt_lengths,
              testing::ElementsAre(kWholePrompt, 20, 1000, 20, 1000, 20, 1000));
  EXPECT_THAT(options.prompt_offsets, testing::ElementsAre(-1, -1, -1, 0, 0, 30, 30));
}

TEST(Offsets, AreTestedAsDocumentsThatBeginAndEndThereOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 64;
  train_on_threads(config);
  Config model = config_of_model(config.output.dir + "/checkpoints");
  const auto tokenizer = make_tokenizer("bytes");
  const auto records = generated_documents(4, 1, *tokenizer, {.least = 51, .most = 64});
  ReciteOptions options{.suffix_tokens = 12, .prompt_lengths = {kWholePrompt, 20, 1000}};
  add_offsets(options, std::vector<std::int64_t>{0, 30});
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      const std::vector<Recitation> all = recite(loaded, *tokenizer, records.documents, options);
      ASSERT_EQ(all.size(), 4u * 4) << "none of 1,000 tokens";
      for (std::size_t i = 8; i < all.size(); ++i) {
        SCOPED_TRACE(to_string(grid) + ' ' + std::to_string(i));
        const std::int64_t offset = options.prompt_offsets[all[i].prompt];
        EXPECT_EQ(offset, i < 12 ? 0 : 30);
        StudyDocument part = records.documents[all[i].document];
        part.tokens = {part.tokens.begin() + offset, part.tokens.begin() + offset + 32};
        const Recitation alone =
            recite(loaded, *tokenizer, std::vector{part}, {.suffix_tokens = 12}).at(0);
        EXPECT_EQ(all[i].truth, alone.truth);
        EXPECT_EQ(all[i].written, alone.written);
        EXPECT_NEAR(all[i].loss, alone.loss, 1e-5);
        EXPECT_NEAR(all[i].record->log10_p[1], alone.record->log10_p[1], 1e-4);
      }
    });
  }
}
