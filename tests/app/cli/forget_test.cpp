// axonn forget and axonn hash as a user runs them.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// A run of 8 steps without shuffling, with a checkpoint after each second one; and the text of
/// document 31 of its data, which step 5 reads first, and of another.
class ForgetRun : public SmallRun {
 public:
  explicit ForgetRun(const std::vector<std::string>& more = {}, const ProgramOptions& how = {}) {
    std::string lines;
    for (int d = 0; d < 60; ++d) lines += json{{"text", document(d)}}.dump() + '\n';
    write_file_atomically(*this / "data.jsonl", lines);
    write_file_atomically(*this / "forget.jsonl", json{{"text", document(31)}}.dump() + '\n');
    write_file_atomically(*this / "unknown.jsonl", R"({"text": "it stands nowhere"})");
    std::vector<std::string> keys{"--data.text",
                                  *this / "data.jsonl",
                                  "--data.shuffle",
                                  "false",
                                  "--data.validation",
                                  "0",
                                  "--training.steps",
                                  "8",
                                  "--training.seq_len",
                                  "16",
                                  "--training.global_batch",
                                  "12",
                                  "--checkpoint.every",
                                  "2",
                                  "--checkpoint.keep",
                                  "0"};
    keys.insert(keys.end(), more.begin(), more.end());
    const Finished done = run_program(train(keys), how);
    EXPECT_EQ(done.code, 0) << done.err;
  }

  /// 25 characters, which are as many tokens.
  static std::string document(int d) {
    std::string text = "document " + std::to_string(d) + " says ";
    while (text.size() < 25)
      text += static_cast<char>('a' + (d * 7 + text.size() * text.size()) % 26);
    return text;
  }

  Finished forget(const std::vector<std::string>& more = {}, const ProgramOptions& how = {}) const {
    std::vector<std::string> all{"forget", out(), "--documents", *this / "forget.jsonl"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, how);
  }
};

json manifest_in(const std::string& folder) {
  return json::parse(read_text(folder + "/forget.json"));
}

}  // namespace

TEST(ForgetProgram, SaysWhatItTakesForgetsVerifiesAndLeavesTheRunAsItIs) {
  const ForgetRun run;
  const auto before = run.checkpoints();
  const Finished dry = run.forget({"--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("documents    1, in 1 places of the data, 25 tokens\n"),
                             HasSubstr("first read   by step 5 of 8\n"),
                             HasSubstr("checkpoint   " + run.out() + "/checkpoints/step-4\n"),
                             HasSubstr("repeats      4 steps (50 %), about "),
                             HasSubstr("writes       " + run.out() + "-forgot\n")));
  EXPECT_FALSE(path_exists(run.out() + "-forgot"));

  const Finished done = run.forget({"--verify"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("equal to the bit: weights and optimizer"));
  EXPECT_EQ(run.checkpoints(), before);
  const json manifest = manifest_in(run.out() + "-forgot");
  EXPECT_EQ(manifest["documents"].size(), 1);
  EXPECT_EQ(manifest["documents"][0]["places"], json::parse("[[0, 775, 800]]"));
  EXPECT_EQ(manifest["steps"], json::parse(R"({"first_read": 5, "of": 8, "repeated_after": 4})"));
  EXPECT_EQ(manifest["grid"], "1,1,1,1");
  EXPECT_TRUE(manifest["verified"]["equal"].get<bool>());
  EXPECT_EQ(manifest["verified"]["from_scratch"]["sha256"], manifest["after"]["sha256"]);
  EXPECT_NE(manifest["before"]["sha256"]["master"], manifest["after"]["sha256"]["master"]);
  EXPECT_EQ(manifest["resumed_from"]["step"], 4);
  EXPECT_THAT(manifest.dump(), testing::Not(HasSubstr(ForgetRun::document(31))));

  const Finished same = run_program({"hash", run.out() + "-forgot", run.out() + "-forgot-verify"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr(manifest["after"]["sha256"]["master"].get<std::string>()),
                              HasSubstr("master       equal to the bit\n")));
  const Finished other = run_program({"hash", run.out(), run.out() + "-forgot"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("values differ, 0 of these only in the sign of zero"));
}

TEST(ForgetProgram, GoesOnAfterAKillAndHasNothingLeftToDoAfterThat) {
  const ForgetRun run;
  ASSERT_EQ(run.forget().code, 0);
  const std::string out = run.out() + "-forgot";
  const json whole = manifest_in(out);
  // As a kill after step 6 leaves it.
  std::filesystem::remove_all(out + "/checkpoints/step-8");
  write_file_atomically(out + "/checkpoints/latest", "step-6\n");
  std::filesystem::remove(out + "/forget.json");
  const Finished on = run.forget();
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.out, HasSubstr("resumed from " + out + "/checkpoints/step-6"));
  EXPECT_EQ(manifest_in(out)["after"], whole["after"]);
  const Finished again = run.forget();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to do"));
  EXPECT_EQ(manifest_in(out)["after"], whole["after"]);

  // A further request takes the run that forgot, and refuses what it has left out already.
  const Finished twice = run_program({"forget", out, "--documents", run / "forget.jsonl"});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("has left out all of these documents already"));
}

TEST(ForgetProgram, NamesDocumentsThatAreNowhereAndFoldersThatAreNoRun) {
  const ForgetRun run;
  const Finished unknown =
      run_program({"forget", run.out(), "--documents", run / "unknown.jsonl", "--dry-run"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("no exact copy, token for token, of " + run / "unknown.jsonl"));
  const Finished no_run =
      run_program({"forget", run / "none", "--documents", run / "forget.jsonl"});
  EXPECT_EQ(no_run.code, 2);
  EXPECT_THAT(no_run.err, HasSubstr("holds no config.toml; give output.dir of a run"));
  EXPECT_FALSE(path_exists(run.out() + "-forgot"));
  const Finished other_run = run.forget({"--out", run.out()});
  EXPECT_EQ(other_run.code, 2);
  EXPECT_THAT(other_run.err, HasSubstr("newer"));
}

TEST(ForgetProgram, ForgetsOnAGridOfProcesses) {
  if (const std::string why = no_mpirun(); !why.empty()) GTEST_SKIP() << why;
  const ProgramOptions ranks{.ranks = 4};
  const ForgetRun run({"--parallelism.x", "2", "--parallelism.z", "2"}, ranks);
  const Finished done = run.forget({"--verify"}, ranks);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("equal to the bit: weights and optimizer"));
  const json manifest = manifest_in(run.out() + "-forgot");
  EXPECT_EQ(manifest["grid"], "2,1,2,1");
  EXPECT_TRUE(manifest["verified"]["equal"].get<bool>());

  // Ranks that are threads have the same bits.
  const Finished threads = run.forget({"--out", run / "threads"});
  EXPECT_EQ(threads.code, 0) << threads.err;
  EXPECT_EQ(manifest_in(run / "threads")["after"]["sha256"], manifest["after"]["sha256"]);
}
