// axonn convert as a user runs it: conversions keep the model, and full disks do no harm.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"
#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/small_disk.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

class ConvertCommand : public testing::Test {
 protected:
  ConvertCommand() { run(run_.train()); }

  static std::string run(const std::vector<std::string>& arguments) {
    const Finished finished = run_program(arguments);
    EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
    return finished.out;
  }
  /// stderr of a run that must exit with this code.
  static std::string error(int code, const std::vector<std::string>& arguments) {
    const Finished finished = run_program(arguments);
    EXPECT_EQ(finished.code, code) << finished.out << finished.err;
    return finished.err;
  }
  static std::string text(const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"generate", "--model", model, "--tokens", "20", "--prompt", "To",
                               "--temperature", "0.7"});
    return run(more);
  }
  std::string checkpoints() const { return run_.out() + "/checkpoints"; }

  SmallRun run_;
};

}  // namespace

TEST_F(ConvertCommand, ACheckpointConvertedToAFolderAndBackGeneratesTheSameText) {
  const std::string folder = run_ / "folder", again = run_ / "again";
  EXPECT_THAT(run({"convert", "--model", checkpoints(), "--out", folder}),
              HasSubstr("wrote " + folder + ", a Hugging Face folder (F32)"));
  run({"convert", "--model", folder, "--out", again});
  const std::string want = text(checkpoints());
  EXPECT_EQ(text(run_.out()), want) << "the run's folder";
  EXPECT_EQ(text(folder), want);
  EXPECT_EQ(text(again), want);
  EXPECT_EQ(text(again, {"--grid", "2,2,1,1"}), want);
  run(run_.train(
      {"--model.path", folder, "--output.dir", run_ / "tuned", "--training.steps", "2"}));
  const std::string half = run_ / "half";
  run({"convert", "--model", folder, "--out", half, "--to", "hf", "--dtype", "bf16"});
  run(run_.train(
      {"--model.path", half, "--output.dir", run_ / "tuned16", "--training.steps", "1"}));
  // A model that is trained further keeps its sizes and its form, even if its source is gone.
  fs::remove_all(folder);
  fs::remove_all(half);
  run({"convert", "--model", run_ / "tuned", "--out", run_ / "tuned-folder", "--tokenizer",
       "bytes"});
  EXPECT_THAT(run({"convert", "--model", run_ / "tuned16", "--out", run_ / "tuned-folder16",
                   "--tokenizer", "bytes"}),
              HasSubstr("a Hugging Face folder (BF16)"));
  EXPECT_EQ(test::plain_folder(run_ / "tuned-folder").at("wte.weight").shape,
            (std::vector<std::int64_t>{256, 16}));
}

TEST_F(ConvertCommand, AdaptersAreWrittenLoadedTrainedFurtherAndMerged) {
  const std::string folder = run_ / "folder", adapter = run_ / "adapter", merged = run_ / "merged",
                    lora = run_ / "lora";
  run({"convert", "--model", checkpoints(), "--out", folder});
  run(run_.train(
      {"--model.path", folder, "--output.dir", lora, "--lora.rank", "4", "--optimizer.lr", "0.1"}));
  run({"convert", "--model", lora + "/checkpoints", "--out", adapter});
  run({"convert", "--model", lora + "/checkpoints", "--out", merged, "--merge"});
  const std::string want = text(lora + "/checkpoints");
  EXPECT_NE(text(folder), want);
  EXPECT_EQ(text(folder, {"--adapter", adapter}), want);
  EXPECT_EQ(text(checkpoints(), {"--adapter", adapter}), want);
  EXPECT_EQ(text(merged), want);
  run(run_.train({"--model.path", folder, "--output.dir", run_ / "more", "--lora.path", adapter,
                  "--training.steps", "1", "--optimizer.lr", "1e-9"}));
  fs::remove_all(adapter);
  EXPECT_EQ(text(run_ / "more" + "/checkpoints"), want) << "a step with a tiny learning rate";
}

TEST_F(ConvertCommand, AdaptersBesideQuantizedWeightsAreMergedIntoTheValuesOfTheirCodes) {
  const std::string folder = run_ / "folder", merged = run_ / "merged", lora = run_ / "lora";
  run({"convert", "--model", checkpoints(), "--out", folder});
  run(run_.train({"--model.path", folder, "--output.dir", lora, "--lora.rank", "4",
                  "--model.quantize", "nf4", "--optimizer.lr", "0.1"}));
  run({"convert", "--model", lora + "/checkpoints", "--out", merged, "--merge"});
  test::spill(run_ / "text.txt", "Once there was a town by the river, and it was small.");
  const auto loss = [&](const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"eval", "--model", model, "--data", run_ / "text.txt", "--seq-len",
                               "8", "--json", run_ / "scores.json"});
    run(more);
    return nlohmann::json::parse(test::slurp(run_ / "scores.json")).at("loss").get<double>();
  };
  const double want = loss(lora + "/checkpoints");
  EXPECT_NEAR(loss(merged), want, 2e-6) << "rounded sums of weight and change";
  const std::string adapter = run_ / "adapter";
  run({"convert", "--model", lora + "/checkpoints", "--out", adapter});
  EXPECT_GT(std::abs(loss(folder, {"--adapter", adapter}) - want), 1e-5)
      << "the same adapters over weights that are not quantized";
}

TEST_F(ConvertCommand, AveragesOfTheWeightsAreExportedAndScoredInTheirPlace) {
  const std::string trained = run_ / "averaged", model = trained + "/checkpoints";
  run(run_.train({"--output.dir", trained, "--optimizer.ema_decay", "0.5", "--optimizer.lr", "0.1",
                  "--data.validation", "0.1"}));
  test::spill(run_ / "text.txt", "Once there was a town by the river, and it was small.");
  const auto scores = [&](const std::string& path, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"eval", "--model", path, "--data", run_ / "text.txt", "--seq-len",
                               "8", "--json", run_ / "scores.json"});
    run(more);
    return nlohmann::json::parse(test::slurp(run_ / "scores.json")).at("loss").get<double>();
  };
  const double want = scores(model, {"--ema"});
  EXPECT_NE(scores(model), want);
  const std::string folder = run_ / "folder", back = run_ / "back", plain = run_ / "plain";
  run({"convert", "--model", model, "--ema", "--out", folder});
  run({"convert", "--model", model, "--ema", "--to", "checkpoint", "--out", back});
  run({"convert", "--model", model, "--out", plain});
  EXPECT_EQ(scores(folder), want);
  EXPECT_EQ(scores(back), want);
  EXPECT_EQ(scores(plain), scores(model));
  EXPECT_EQ(text(folder), text(model, {"--ema"}));
}

TEST_F(ConvertCommand, AveragesThatAreMissingAreRefusedWithTheKeyThatMakesThem) {
  for (const std::string command : {"convert", "generate"}) {
    std::vector<std::string> arguments{command, "--model", checkpoints(), "--ema"};
    if (command == "convert") arguments.insert(arguments.end(), {"--out", run_ / "x"});
    EXPECT_THAT(error(kUsageError, arguments),
                HasSubstr("step-6 has no averages of its weights; leave --ema out, or train with "
                          "optimizer.ema_decay"));
  }
  run({"convert", "--model", checkpoints(), "--out", run_ / "folder"});
  EXPECT_THAT(
      error(kUsageError, {"convert", "--model", run_ / "folder", "--ema", "--out", run_ / "x"}),
      HasSubstr("is not a checkpoint; only checkpoints hold averages of weights"));
  EXPECT_THAT(error(kUsageError, run_.train({"--optimizer.ema_decay", "1"})),
              HasSubstr("optimizer.ema_decay"));
}

TEST_F(ConvertCommand, UsageErrorsNameTheFlag) {
  EXPECT_THAT(error(kUsageError, {"convert", "--model", checkpoints()}), HasSubstr("--out"));
  const std::vector<std::string> good{"convert", "--model", checkpoints(), "--out", run_ / "x"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = good;
    all.insert(all.end(), more.begin(), more.end());
    return error(kUsageError, all);
  };
  EXPECT_THAT(with({"--dtype", "f64"}),
              HasSubstr("--dtype is 'f64'; it must be one of bf16, f16, f32"));
  EXPECT_THAT(with({"--to", "onnx"}),
              HasSubstr("--to is 'onnx'; it must be one of checkpoint, gguf, hf"));
  EXPECT_THAT(with({"--max-shard-size", "much"}), HasSubstr("--max-shard-size"));
  EXPECT_FALSE(fs::exists(run_ / "x"));
}

TEST_F(ConvertCommand, AFullDiskIsReportedBeforeWritingOrLeavesNoFilesBehind) {
  const std::string folder = run_ / "disk";
  const SmallDisk disk(folder, "16k");  // the folder's tensors alone take 30
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  EXPECT_THAT(error(kFailed, {"convert", "--model", checkpoints(), "--out", folder + "/x"}),
              HasSubstr("but there is room for only"));
  const std::string larger = run_ / "larger";
  const SmallDisk tight(larger, "32k");  // space for the tensors, but not for config.json as well
  EXPECT_THAT(error(kFailed, {"convert", "--model", checkpoints(), "--out", larger + "/x"}),
              HasSubstr("No space left on device"));
  for (const std::string& path : {folder, larger})
    EXPECT_TRUE(test::names_in(path).empty()) << path;
}
