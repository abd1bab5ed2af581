// Runs that forget documents: resumed from before their first use, they have the bits of a run that
// never counted them.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/storage/checkpoint/state_hash.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/forget_plan.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// 230 documents of 20 to 87 characters; `other`: its letters are others.
std::string document(std::int64_t d, bool other = false) {
  static const std::string kText = synthetic_text(20'000, 1);
  std::string text = kText.substr(static_cast<std::size_t>(d * 80), 20 + d * 37 % 68);
  for (char& c : text)
    if (other && c >= 'a' && c <= 'z') c = static_cast<char>('a' + (c - 'a' + 7) % 26);
  return text;
}

std::string line(const std::string& text) { return nlohmann::json{{"text", text}}.dump() + '\n'; }

/// A file of all documents, of which those of `other` have other letters.
std::string write_data(const std::string& path, const std::vector<std::int64_t>& other = {}) {
  std::string lines;
  for (std::int64_t d = 0; d < 230; ++d)
    lines += line(document(d, std::ranges::find(other, d) != other.end()));
  write_file_atomically(path, lines);
  return path;
}

std::string write_documents(const std::string& path, const std::vector<std::int64_t>& documents,
                            bool other = false) {
  std::string lines;
  for (const std::int64_t d : documents) lines += line(document(d, other));
  write_file_atomically(path, lines);
  return path;
}

/// A run of 10 steps of 12 sequences of 32 tokens, with a checkpoint after each.
Config run_config(const test::TemporaryPath& folder, const std::string& name, DocumentMode mode) {
  Config config = tiny_config(folder / name);
  config.data.synthetic = 0;
  config.data.text = {write_data(folder / "data.jsonl")};
  config.data.documents = mode;
  config.data.eod = 0;
  config.training.seq_len = 32;
  config.checkpoint.every = 1;
  return config;
}

Config as_llama(Config config) {
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 4;
  config.model.tied = false;
  return config;
}

Config with_experts(Config config) {
  config = as_llama(config);
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.training.balance.weight = 0.01;
  return config;
}

Config of_examples(Config config) {
  config.data.jsonl = config.data.text;
  config.data.text.clear();
  return config;
}

StateHash hash_of(const Config& config) {
  return hash_of_state(CheckpointReader(config.output.dir));
}

/// Documents whose first use is in the middle of the run: after steps that leave a checkpoint, and
/// early enough that some steps follow.
std::vector<std::int64_t> used_in_the_middle(const Config& config,
                                             const test::TemporaryPath& folder) {
  Config with = config;
  with.data.forget = {folder / "candidate.jsonl"};
  std::vector<std::int64_t> found;
  for (std::int64_t d = 0; d < 230 && found.size() < 2; ++d) {
    write_documents(folder / "candidate.jsonl", {d});
    const auto first = plan_forgetting(prepared(with).config(), config.output.dir).first;
    if (first && *first >= 5 && *first <= 8) found.push_back(d);
  }
  EXPECT_EQ(found.size(), 2);
  return found;
}

/// The run without the documents, in another folder, from a checkpoint ("": from scratch).
Config without(const Config& config, const std::string& documents, const std::string& out,
               const std::string& from) {
  Config less = config;
  less.data.forget.push_back(documents);
  less.output.dir = out;
  less.checkpoint.resume = from;
  return less;
}

std::vector<std::pair<std::string, Config>> cases(const test::TemporaryPath& folder) {
  const auto config = [&](DocumentMode mode) { return run_config(folder, "run", mode); };
  Config separate = as_llama(config(DocumentMode::separate)),
         apertus = as_llama(config(DocumentMode::apertus));
  separate.training.goldfish = {.k = 3, .h = 4};
  apertus.training.goldfish = {.k = 3, .h = 4, .mask = GoldfishMask::apertus};
  return {{"joined", config(DocumentMode::joined)},
          {"separate, goldfish", separate},
          {"packed", config(DocumentMode::packed)},
          {"apertus", apertus},
          {"experts", with_experts(config(DocumentMode::joined))},
          {"examples", of_examples(config(DocumentMode::joined))}};
}

}  // namespace

TEST(Forget, FromTheCheckpointBeforeTheirFirstUseHasTheBitsOfARunThatNeverCountedThem) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 2, 1, 2}}) {
    test::TemporaryPath folder;
    for (const auto& [name, of_case] : cases(folder)) {
      SCOPED_TRACE(name + " on " + to_string(grid));
      std::filesystem::remove_all(folder / "run");
      std::filesystem::remove_all(folder / "forgot");
      std::filesystem::remove_all(folder / "scratch");
      const Config config = on_grid(of_case, grid);
      train_on_threads(config);
      const StateHash before = hash_of(config);
      const auto documents = used_in_the_middle(config, folder);
      const std::string file = write_documents(folder / "forget.jsonl", documents);
      const Config scratch = without(config, file, folder / "scratch", "");
      const ForgetPlan plan = plan_forgetting(prepared(scratch).config(), config.output.dir);
      ASSERT_TRUE(plan.first);
      EXPECT_EQ(plan.from, *plan.first - 1);
      EXPECT_EQ(plan.checkpoint,
                config.output.dir + "/checkpoints/step-" + std::to_string(plan.from));
      EXPECT_EQ(plan.repeated(), 10 - plan.from);
      EXPECT_GT(plan.seconds(), 0);
      const Config forgot = without(config, file, folder / "forgot", plan.checkpoint);
      train_on_threads(forgot);
      train_on_threads(scratch);
      EXPECT_EQ(hash_of(forgot), hash_of(scratch));
      EXPECT_NE(hash_of(forgot).state, before.state);
      EXPECT_EQ(hash_of(config), before) << "the run itself stays as it is";

      // One step later it is too late.
      const Config late =
          without(config, file, folder / "late",
                  config.output.dir + "/checkpoints/step-" + std::to_string(*plan.first));
      EXPECT_THAT(failure_of(late), HasSubstr("has learned of its documents"));
    }
  }
}

TEST(Forget, HasTheBitsOfARunOnDataWithAnotherTextInTheirPlace) {
  for (const auto& [name, of_case] : cases(test::TemporaryPath())) {
    test::TemporaryPath folder;
    Config config = on_grid(of_case, {2, 1, 2, 1});
    std::vector<std::string>& data =
        config.data.text.empty() ? config.data.jsonl : config.data.text;
    data = {write_data(folder / "data.jsonl")};
    const Config one =
        without(config, write_documents(folder / "a.jsonl", {3, 50}), folder / "one", "");
    train_on_threads(one);
    data = {write_data(folder / "other.jsonl", {3, 50})};
    const Config other =
        without(config, write_documents(folder / "b.jsonl", {3, 50}, true), folder / "other", "");
    train_on_threads(other);
    EXPECT_EQ(hash_of(one), hash_of(other)) << name;
  }
}

TEST(Forget, OfFurtherDocumentsGoesOnFromTheRunThatForgotTheFirst) {
  test::TemporaryPath folder;
  const Config config = run_config(folder, "run", DocumentMode::joined);
  train_on_threads(config);
  const auto plan_of = [&](const Config& less, const std::string& run) {
    return plan_forgetting(prepared(less).config(), run);
  };
  // The order of the two in time: the one that is forgotten later is read later.
  auto both = used_in_the_middle(config, folder);
  std::vector<std::int64_t> uses;
  for (const std::int64_t d : both)
    uses.push_back(
        *plan_of(without(config, write_documents(folder / "one.jsonl", {d}), folder / "unused", ""),
                 config.output.dir)
             .first);
  if (uses[0] > uses[1]) {
    std::swap(both[0], both[1]);
    std::swap(uses[0], uses[1]);
  }
  const std::string first = write_documents(folder / "first.jsonl", {both[0]}),
                    second = write_documents(folder / "second.jsonl", {both[1]});
  Config once = without(config, first, folder / "once", "");
  once.checkpoint.resume = plan_of(once, config.output.dir).checkpoint;
  train_on_threads(once);
  const Config scratch = without(once, second, folder / "scratch", "");
  train_on_threads(scratch);
  const ForgetPlan further = plan_of(scratch, once.output.dir);
  EXPECT_EQ(further.first, uses[1]);
  EXPECT_EQ(further.from, uses[1] > uses[0] ? uses[1] - 1 : 0) << "its folder begins at the first";
  const Config twice = without(once, second, folder / "twice", further.checkpoint);
  train_on_threads(twice);
  EXPECT_EQ(hash_of(twice), hash_of(scratch));
  EXPECT_THAT([&] { plan_of(once, once.output.dir); },
              testing::ThrowsMessage<UsageError>(HasSubstr("nothing to forget")));

  // What a run has left out stays out of the runs that go on with it.
  Config back = config;
  back.output.dir = once.output.dir;
  back.checkpoint.resume = "auto";
  back.training.steps = 12;
  EXPECT_THAT(failure_of(back), HasSubstr("data.forget left out documents that it does not name"));
  back.data.forget = once.data.forget;
  EXPECT_EQ(failure_of(back), "");
}

TEST(Forget, RepeatsAtMostTheFactorTimesTheStepsSinceTheFirstUse) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  config.training.steps = 30;
  config.data.shuffle = false;
  config.checkpoint.keep = 1;
  config.checkpoint.keep_factor = 1.5;
  train_on_threads(config);
  EXPECT_LT(steps_in(config.output.dir + "/checkpoints").size(), 16);
  for (std::int64_t d = 0; d < 200; d += 10) {
    Config less = config;
    less.data.forget = {write_documents(folder / "forget.jsonl", {d})};
    const ForgetPlan plan = plan_forgetting(prepared(less).config(), config.output.dir);
    ASSERT_TRUE(plan.first) << d;
    const double since = static_cast<double>(30 - *plan.first + 1);
    EXPECT_LE(static_cast<double>(plan.repeated()), 1.5 * since) << d;
  }
  config.checkpoint.keep_factor = 1;
  EXPECT_THAT(failure_of(config), HasSubstr("[checkpoint] keep_factor = 1; wanted more than 1"));
}

TEST(Forget, InAStageNamesTheDocumentsOfAnyAndCountsItsOwnSamples) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  std::string lines;
  for (std::int64_t d = 0; d < 230; ++d) lines += line(document(d, true));
  write_file_atomically(folder / "second.jsonl", lines);
  config.stage = {{.name = "one", .text = config.data.text},
                  {.name = "two", .from_step = 6, .text = {folder / "second.jsonl"}}};
  config.data.text.clear();
  config.data.shuffle = false;
  train_on_threads(config);
  const std::string file = write_documents(folder / "forget.jsonl", {1}, true);
  const Config scratch = without(config, file, folder / "scratch", "");
  const ForgetPlan plan = plan_forgetting(prepared(scratch).config(), config.output.dir);
  EXPECT_EQ(plan.first, 6);
  ASSERT_EQ(plan.documents.size(), 1);
  ASSERT_EQ(plan.documents[0].occurrences.size(), 2);
  EXPECT_EQ(plan.documents[0].occurrences[0].size(), 0);
  EXPECT_EQ(plan.documents[0].occurrences[1].size(), 1);
  const Config forgot = without(config, file, folder / "forgot", plan.checkpoint);
  train_on_threads(forgot);
  train_on_threads(scratch);
  EXPECT_EQ(hash_of(forgot), hash_of(scratch));
  EXPECT_NE(hash_of(forgot).state, hash_of(config).state);
  const Config late =
      without(config, file, folder / "late", config.output.dir + "/checkpoints/step-6");
  EXPECT_THAT(failure_of(late), HasSubstr("that it has seen of stage two"));
}

TEST(Forget, OfDataInAnotherOrderIsRefusedSinceNobodyKnowsWhatWasRead) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  train_on_threads(config);
  Config other = without(config, write_documents(folder / "forget.jsonl", {3}), folder / "other",
                         config.output.dir + "/checkpoints/step-1");
  other.training.seed = 5;
  other.checkpoint.changed_data = ChangedData::restart;
  EXPECT_THAT(failure_of(other), AllOf(HasSubstr("has learned of its documents is not known"),
                                       HasSubstr("training.seed was 1 and is 5")));
}

TEST(Forget, NeedsNothingForDocumentsThatNoStepReads) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  config.data.shuffle = false;
  config.training.steps = 2;
  train_on_threads(config);
  config.data.forget = {write_documents(folder / "last.jsonl", {200})};
  const ForgetPlan plan = plan_forgetting(prepared(config).config(), config.output.dir);
  EXPECT_FALSE(plan.first);
  config.data.forget = {write_documents(folder / "first.jsonl", {0})};
  const ForgetPlan anew = plan_forgetting(prepared(config).config(), config.output.dir);
  EXPECT_EQ(anew.first, 1);
  EXPECT_EQ(anew.checkpoint, "");
  EXPECT_EQ(anew.repeated(), 2);
}

TEST(Forget, SkipsDamagedCheckpointsWithAWarning) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  train_on_threads(config);
  const auto documents = used_in_the_middle(config, folder);
  config.data.forget = {write_documents(folder / "forget.jsonl", documents)};
  const auto plan = [&] { return plan_forgetting(prepared(config).config(), config.output.dir); };
  const ForgetPlan whole = plan();
  std::filesystem::remove(whole.checkpoint + "/rank-00000.safetensors");
  const ForgetPlan damaged = plan();
  EXPECT_EQ(damaged.from, whole.from - 1);
  ASSERT_EQ(damaged.warnings.size(), 1);
  EXPECT_THAT(damaged.warnings.front(), AllOf(HasSubstr(whole.checkpoint), HasSubstr("skipped")));
}

TEST(Forget, RefusesDocumentsThatAreNotInTheDataAndRunsThatAreNotRepeatable) {
  test::TemporaryPath folder;
  Config config = run_config(folder, "run", DocumentMode::joined);
  config.data.forget = {write_documents(folder / "forget.jsonl", {3, 4}, true)};
  EXPECT_THAT(failure_of(config), AllOf(HasSubstr("no exact copy"), HasSubstr("document 1 of"),
                                        HasSubstr("document 2 of")));
  config.training.deterministic = false;
  EXPECT_THAT([&] { plan_forgetting(prepared(config).config(), config.output.dir); },
              testing::ThrowsMessage<UsageError>(HasSubstr("deterministic")));
}
