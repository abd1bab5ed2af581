// The recipes in configs/ as a user runs them.
#include <array>
#include <filesystem>
#include <map>
#include <regex>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

#include "tests/app/cli/program.h"
#include "tests/support/build_paths.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::Not;

namespace {

const std::string kConfigs = test::source_folder() + "/configs";

/// Each match of a pattern's first group.
std::vector<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

std::string run(const std::vector<std::string>& arguments) {
  const Finished finished = run_program(arguments);
  EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
  return finished.out;
}

}  // namespace

TEST(Recipes, TheLaptopRecipeTrainsABaseModelAndTunesItOnConversations) {
  test::TemporaryPath folder;
  const std::string base = folder / "base", tuned = folder / "tuned",
                    chats = folder / "chats.jsonl";
  run({"train", kConfigs + "/laptop-llama.toml", "--output.dir", base, "--data.synthetic", "100kB",
       "--training.steps", "3", "--lr_scheduler.warmup_steps", "2", "--training.seq_len", "384",
       "--training.global_batch", "1", "--training.eval_batches", "1"});
  run({"data", "synthetic", "--conversations", "60", "--out", chats});
  const std::string shown = run({"data", "show", chats, "--seq-len", "384"});
  EXPECT_THAT(shown, HasSubstr("sequences  "));
  EXPECT_THAT(shown, HasSubstr("<|im_start|>assistant\\n«"));
  EXPECT_THAT(shown, HasSubstr("<|im_end|>»\\n"));
  const std::vector<std::string> tune{"train",
                                      kConfigs + "/laptop-chat.toml",
                                      "--model.path",
                                      base + "/checkpoints",
                                      "--data.jsonl",
                                      chats,
                                      "--output.dir",
                                      tuned,
                                      "--training.steps",
                                      "3",
                                      "--training.global_batch",
                                      "1",
                                      "--training.eval_batches",
                                      "1",
                                      "--training.seq_len",
                                      "384",
                                      "--lr_scheduler.warmup_steps",
                                      "2"};
  std::vector<std::string> dry = tune;
  dry.push_back("--dry-run");
  EXPECT_THAT(run(dry), HasSubstr("target  \"..."));
  EXPECT_THAT(run(tune), HasSubstr("validation: step 3"));
}

TEST(Recipes, TinyExpertsTrainGenerateAndMoveToHuggingFaceAndBack) {
  test::TemporaryPath folder;
  const std::string trained = folder / "trained", hf = folder / "hf", back = folder / "back",
                    again = folder / "again";
  EXPECT_THAT(
      run({"train", kConfigs + "/tiny-experts.toml", "--output.dir", trained, "--data.synthetic",
           "100kB", "--training.steps", "4", "--lr_scheduler.warmup_steps", "2",
           "--training.eval_batches", "1", "--output.log_every", "1"}),
      HasSubstr("  load "));
  const auto text = [&](const std::vector<std::string>& grid) {
    std::vector<std::string> command{
        "generate", "--model", trained + "/checkpoints", "--prompt", "The town", "--tokens", "20"};
    command.insert(command.end(), grid.begin(), grid.end());
    return run(command);
  };
  EXPECT_EQ(text({"--grid", "1,1,4,1", "--expert-ranks", "4"}), text({}));
  run({"convert", "--model", trained + "/checkpoints", "--out", hf});
  run({"convert", "--model", hf, "--out", back});
  run({"convert", "--model", back, "--out", again});
  EXPECT_EQ(test::slurp(again + "/model.safetensors"), test::slurp(hf + "/model.safetensors"));
  EXPECT_THAT(test::slurp(hf + "/config.json"), HasSubstr("MixtralForCausalLM"));
}

TEST(Recipes, TinyApertusTrainsGeneratesAndMovesToHuggingFaceAndBackAndToGguf) {
  test::TemporaryPath folder;
  const std::string trained = folder / "trained", hf = folder / "hf", back = folder / "back",
                    again = folder / "again", tuned = folder / "tuned";
  EXPECT_THAT(
      run({"train", kConfigs + "/tiny-apertus.toml", "--output.dir", trained, "--data.synthetic",
           "100kB", "--training.steps", "4", "--lr_scheduler.warmup_steps", "2",
           "--lr_scheduler.decay_steps", "1", "--training.eval_batches", "1"}),
      HasSubstr("goldfish: "));
  const std::string checkpoint = trained + "/checkpoints";
  const auto text = [&](const std::string& grid) {
    return run({"generate", "--model", checkpoint, "--prompt", "The town", "--tokens", "20",
                "--grid", grid});
  };
  EXPECT_EQ(text("2,2,1,1"), text("1,1,1,1"));
  run({"convert", "--model", checkpoint, "--out", hf});
  run({"convert", "--model", hf, "--out", back});
  run({"convert", "--model", back, "--out", again});
  EXPECT_EQ(test::slurp(again + "/model.safetensors"), test::slurp(hf + "/model.safetensors"));
  EXPECT_THAT(test::slurp(hf + "/config.json"), HasSubstr("ApertusForCausalLM"));
  const std::string gguf = folder / "model.gguf";
  run({"convert", "--model", checkpoint, "--to", "gguf", "--out", gguf});
  EXPECT_THAT(test::slurp(gguf), HasSubstr("xielu.alpha_p"));
  run({"train", "--model.path", hf, "--lora.rank", "2", "--data.synthetic", "100kB",
       "--training.steps", "2", "--training.seq_len", "64", "--training.global_batch", "2",
       "--optimizer.lr", "1e-3", "--output.dir", tuned});
}

TEST(Recipes, EveryConfigDryRunsWithExactMemory) {
  test::TemporaryPath folder;
  const std::string records = folder / "records.jsonl";
  run({"data", "synthetic", "--records", "4000", "--out", records});
  // Models that a recipe reads from a folder, by their known sizes.
  const std::map<std::string, std::string> folders{
      {"llama-3.1-405b", "llama-3.1-405b"}, {"llama-3.1-70b", "llama-3.1-70b"},
      {"llama-3.1-8b", "llama-3.1-8b"},     {"mixtral-8x7b", "mixtral-8x7b"},
      {"qwen3-30b-a3b", "qwen3-30b-a3b"},   {"laptop-chat", "llama-3.2-1b"}};
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    const std::string recipe = entry.path().stem();
    std::vector<std::string> dry{
        "train", entry.path(),       "--dry-run",    "--data.text",
        records, "--data.tokenizer", "bytes",        "--data.validation",
        "0.3",   "--output.dir",     folder / "out", "--parallelism.machine",
        "alps"};
    for (const auto& [begin, name] : folders)
      if (recipe.starts_with(begin)) {
        for (const char* word : {"--model.path", "", "--model.name"}) dry.emplace_back(word);
        dry.push_back(name);
      }
    const Finished finished = run_program(dry);
    EXPECT_THAT(finished.out, HasSubstr("at the peak of a step: exact")) << recipe << finished.err;
    // The disk of a test has no room for the largest checkpoints; nothing else may be a fault.
    if (finished.code != 0) {
      EXPECT_THAT(finished.err, HasSubstr("error: a checkpoint takes")) << recipe;
      EXPECT_THAT(finished.err, Not(HasSubstr("too little memory"))) << recipe;
    }
    ++recipes;
  }
  EXPECT_GE(recipes, 22);
}

TEST(Recipes, PlansInTheirHeadersAreThoseOfThePlanner) {
  const std::regex planned(
      R"(Planned, not measured: grid (\d+),(\d+),(\d+),(\d+) (?:with context (\d+) )?)"
      R"((?:(?:with|and) experts (\d+) )?.*?takes )"
      R"(([0-9.]+) s per step of .*?, ([0-9.]+) GB per device, ([0-9.]+) % of the advertised peak)"
      R"(.*? according to axonn (plan(?: +[^A-Z\s]\S*)*))");
  const std::array<const char*, 6> axes{"x", "y", "z", "data", "context", "experts"};
  // A plan's row has these columns: grid, micro-batch, recomputation, seconds, seconds of compute,
  // exposed seconds, GB, tokens/s a device, Pflop/s, per cent.
  const char* const row = R"( 1  [\d,]+ (?:\(.*?\))? +(.*))";
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    std::string text = test::slurp(entry.path());
    if (text.find("Planned, not measured") == std::string::npos) continue;
    text = std::regex_replace(text, std::regex(R"(\\?\n# *)"), " ");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(text, found, planned)) << entry.path();
    std::vector<std::string> plan = matches(found[10], "([^ ]+)");
    if (plan[1].starts_with("configs/")) plan[1] = entry.path();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      plan.push_back(concat("--parallelism.", axes[i]));
      plan.push_back(found[i + 1].matched ? found[i + 1].str() : "1");
    }
    const std::vector<std::string> rows = matches(run(plan), row);
    ASSERT_EQ(rows.size(), 1U) << entry.path();
    const std::vector<std::string> columns = matches(rows[0], "([^ ]+)");
    for (const auto& [column, group] : {std::pair{2, 7}, {5, 8}, {9, 9}}) {
      const double want = std::stod(columns.at(column));
      EXPECT_NEAR(std::stod(found[group]), want, 0.01 * want) << entry.path() << ": " << rows[0];
    }
    ++plans;
  }
  EXPECT_GE(plans, 11);
}

TEST(Recipes, ApertusDryRunsWithTheMemoryOfEveryRank) {
  test::TemporaryPath folder;
  for (const auto& [name, parameters] :
       {std::pair{"/apertus-8b.toml", "8,053,338,176 parameters"},
        std::pair{"/apertus-70b.toml", "70,599,864,480 parameters"}}) {
    // The same with data that are here, for each stage.
    const std::regex tokens("tokens = \"[a-z0-9_]*\"");
    const std::string file = folder / "recipe.toml";
    write_file_atomically(
        file, std::regex_replace(test::slurp(kConfigs + name), tokens, "synthetic = 1000000"));
    // The disk of a test has no room for its checkpoints, which the exit code says.
    const Finished dry = run_program(
        {"train", file, "--dry-run", "--data.tokenizer", "bytes", "--output.dir", folder / "out"});
    EXPECT_THAT(dry.out, HasSubstr(parameters)) << dry.err;
    EXPECT_THAT(dry.out, HasSubstr("at the peak of a step: exact")) << dry.err;
  }
}

TEST(Recipes, DataThatAFlagNamesReplaceTheStages) {
  test::TemporaryPath folder;
  const Finished dry =
      run_program({"train", kConfigs + "/apertus-8b.toml", "--dry-run", "--data.synthetic", "1MB",
                   "--data.tokenizer", "bytes", "--output.dir", folder / "out"});
  EXPECT_THAT(dry.err, HasSubstr("--data.synthetic replaces the entries of [[stage]]"));
  EXPECT_THAT(dry.out, HasSubstr("at the peak of a step: exact"));
}
