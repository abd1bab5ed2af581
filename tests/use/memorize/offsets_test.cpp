#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/memorize/recite.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

TEST(Offsets, GoWithEachLengthButTheWholePrompt) {
  ReciteOptions options{.prompt_lengths = {kWholePrompt, 20, 1000}};
  add_sweeps(options, std::vector<std::int64_t>{0, 30}, {});
  EXPECT_THAT(options.prompt_lengths,
              testing::ElementsAre(kWholePrompt, 20, 1000, 20, 1000, 20, 1000));
  EXPECT_THAT(options.prompt_offsets, testing::ElementsAre(-1, -1, -1, 0, 0, 30, 30));
}

TEST(SuffixLengths, GoWithEachPromptAndOffset) {
  ReciteOptions options{.suffix_tokens = 50, .prompt_lengths = {kWholePrompt, 20}};
  add_sweeps(options, std::vector<std::int64_t>{7}, std::vector<std::int64_t>{10, 60});
  EXPECT_THAT(options.prompt_lengths, testing::ElementsAre(0, 20, 20, 0, 20, 20, 0, 20, 20));
  EXPECT_THAT(options.prompt_offsets, testing::ElementsAre(-1, -1, 7, -1, -1, 7, -1, -1, 7));
  EXPECT_THAT(options.prompt_suffixes, testing::ElementsAre(50, 50, 50, 10, 10, 10, 60, 60, 60));
  EXPECT_TRUE(is_whole(options, 0));
  EXPECT_FALSE(is_whole(options, 1));
  EXPECT_FALSE(is_whole(options, 3)) << "another suffix";
}

TEST(SuffixLengths, AreRefusedTwice) {
  const std::vector<std::int64_t> main{10, 50}, twice{10, 20, 10}, once{10, 20};
  EXPECT_THROW(check_suffixes(main, 50, "suffixes"), UsageError);
  EXPECT_THROW(check_suffixes(twice, 50, "suffixes"), UsageError);
  EXPECT_NO_THROW(check_suffixes(once, 50, "suffixes"));
}

TEST(Offsets, AndSuffixesAreTestedAsDocumentsThatBeginAndEndThereOnEveryGrid) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "run");
  config.training.seq_len = 64;
  train_on_threads(config);
  Config model = config_of_model(config.output.dir + "/checkpoints");
  const auto tokenizer = make_tokenizer("bytes");
  const auto records = generated_documents(4, 1, *tokenizer, {.least = 51, .most = 64});
  ReciteOptions options{.suffix_tokens = 12, .prompt_lengths = {kWholePrompt, 20, 1000}};
  add_sweeps(options, std::vector<std::int64_t>{0, 30}, std::vector<std::int64_t>{5});
  for (const GridShape& grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    model.parallelism.set_grid(grid);
    const PreparedRun run = prepared_model(model);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      LoadedModel loaded(run, world, make_cpu_backend(1), {.trainable = false});
      loaded.initialise();
      const std::vector<Recitation> all = recite(loaded, *tokenizer, records.documents, options);
      ASSERT_EQ(all.size(), 2u * 4 * 4) << "none of 1,000 tokens";
      for (std::size_t i = 0; i < all.size(); ++i) {
        SCOPED_TRACE(to_string(grid) + ' ' + std::to_string(i));
        const std::int64_t offset = options.prompt_offsets[all[i].prompt],
                           suffix = options.prompt_suffixes[all[i].prompt],
                           length = options.prompt_lengths[all[i].prompt];
        EXPECT_EQ(suffix, i < 16 ? 12 : 5);
        EXPECT_EQ(all[i].scores.has_value(), i < 4) << "of the whole document, once";
        if (offset == kBeforeSuffix && length != kWholePrompt) continue;
        EXPECT_EQ(offset, i % 16 < 4 ? -1 : i % 16 < 12 ? 0 : 30);
        StudyDocument part = records.documents[all[i].document];
        if (offset >= 0)
          part.tokens = {part.tokens.begin() + offset,
                         part.tokens.begin() + offset + length + suffix};
        const Recitation alone =
            recite(loaded, *tokenizer, std::vector{part}, {.suffix_tokens = suffix}).at(0);
        EXPECT_EQ(all[i].truth, alone.truth);
        EXPECT_EQ(all[i].written, alone.written);
        EXPECT_NEAR(all[i].loss, alone.loss, 1e-5);
        EXPECT_NEAR(all[i].record->log10_p[1], alone.record->log10_p[1], 1e-4);
      }
      // Those that exist are taken as they are, in whole rounds.
      ReciteOptions resumed = options;
      resumed.batch = 1;
      std::vector<Recitation> made;
      resumed.made = [&](std::int64_t first, std::span<const Recitation> next) {
        EXPECT_EQ(first, std::ssize(made));
        made.insert(made.end(), next.begin(), next.end());
      };
      resumed.known = std::vector<Recitation>(all.begin(), all.end());
      for (Recitation& one : resumed.known) one.loss = -1;
      for (const Recitation& one : recite(loaded, *tokenizer, records.documents, resumed))
        EXPECT_EQ(one.loss, -1);
      EXPECT_TRUE(made.empty());
      resumed.known.pop_back();
      const auto redone = recite(loaded, *tokenizer, records.documents, resumed);
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(redone[i].loss, all[i].loss, 1e-4);
      EXPECT_EQ(made.size(), world.rank() == 0 ? all.size() : 0u);
    });
  }
}
