#include <optional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/memorize/audit_part.h"
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

namespace {

/// Recitations that exist are taken as they are, in whole rounds.
void expect_goes_on(LoadedModel& model, const StudyDocuments& documents, ReciteOptions options,
                    const std::vector<Recitation>& all, const std::string& path) {
  const auto tokenizer = make_tokenizer("bytes");
  const bool leads = model.grid().world().rank() == 0;
  std::vector<Recitation> made = all;
  for (Recitation& one : made) one.loss = -1;
  options.batch = 1;
  std::optional<AuditPart> part;
  if (leads) {
    options.part = &part.emplace(path, "an audit");
    part->append(0, made);
  }
  options.kept = {.recitations = std::ssize(all)};
  for (const Recitation& one : recite(model, *tokenizer, documents, options)) {
    EXPECT_EQ(one.loss, leads ? -1 : 0);
    EXPECT_FALSE(one.texts) << "which only the file has";
  }
  if (leads) part->append(std::ssize(all) - 1, {});  // the last one is lost
  --options.kept->recitations;
  const auto redone = recite(model, *tokenizer, documents, options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_NEAR(redone[i].loss, all[i].loss, 1e-4);
    if (!leads) continue;
    EXPECT_NEAR(part->recitation(i).loss, all[i].loss, 1e-4);
    EXPECT_EQ(part->recitation(i).texts->truth, all[i].texts->truth);
  }
}

}  // namespace

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
        EXPECT_EQ(all[i].texts->truth, alone.texts->truth);
        EXPECT_EQ(all[i].texts->written, alone.texts->written);
        EXPECT_NEAR(all[i].loss, alone.loss, 1e-5);
        EXPECT_NEAR(all[i].record->log10_p[1], alone.record->log10_p[1], 1e-4);
      }
      expect_goes_on(loaded, records.documents, options, all, folder / ("part-" + to_string(grid)));
    });
  }
}
