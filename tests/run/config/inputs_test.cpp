// No command removes or replaces what it reads.
#include "axonn/run/config/inputs.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/records/run_folder.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
namespace fs = std::filesystem;

namespace {

/// A file in a folder that is made with its parents.
std::string make_file(const std::string& path, const std::string& text = "x") {
  make_folders(fs::path(path).parent_path());
  test::spill(path, text);
  return path;
}

std::vector<std::string> told(const NamedPaths& paths) {
  std::vector<std::string> all;
  for (const NamedPath& one : paths) all.push_back(concat(one.name, ' ', one.path));
  return all;
}

std::string replacing_by(const Config& config) {
  return fault_of([&] { refuse_to_replace_inputs(config); });
}

}  // namespace

TEST(Inputs, OfARunAreAllThatItsKeysNameAsFarAsTheyExist) {
  test::TemporaryPath folder;
  const auto file = [&](const std::string& name) { return make_file(folder / name); };
  Config config;
  config.model.path = fs::path(file("model/config.json")).parent_path();
  config.model.lora.path = fs::path(file("lora/adapter_config.json")).parent_path();
  config.data = {.text = {fs::path(file("texts/deep/a.txt")).parent_path().parent_path(),
                          fs::path(file("one.txt")).parent_path() / "on?.txt"},
                 .tokens = {"0.5 " + folder / "web 0.5 none"},
                 .jsonl = {file("chats.jsonl"), "missing.jsonl"},
                 .chat_template = file("form.jinja"),
                 .tokenizer = file("tokenizer.json"),
                 .validation = file("held.txt")};
  for (const char* end : {".bin", ".idx"}) file(std::string("web") + end);
  config.stage = {{.name = "a", .text = {file("stage.txt")}}, {.tokens = {file("stage.bin")}}};
  config.parallelism.machine = file("machine.toml");
  config.checkpoint.resume = fs::path(file("step-3/index.json")).parent_path();
  config.file = file("run.toml");
  EXPECT_THAT(
      told(inputs_of(config)),
      testing::UnorderedElementsAre(
          "model.path " + folder / "model", "lora.path " + folder / "lora",
          "data.text " + folder / "texts", "data.text " + folder / "one.txt",
          "data.tokens " + folder / "web.bin", "data.tokens " + folder / "web.idx",
          "data.jsonl " + folder / "chats.jsonl", "data.chat_template " + folder / "form.jinja",
          "data.tokenizer " + folder / "tokenizer.json", "data.validation " + folder / "held.txt",
          "stage.text " + folder / "stage.txt", "stage.tokens " + folder / "stage.bin",
          "parallelism.machine " + folder / "machine.toml",
          "checkpoint.resume " + folder / "step-3", "CONFIG " + folder / "run.toml"));
}

TEST(Inputs, AreNotReplacedByARunWhateverNamesThemAndHoweverTheirPathIsWritten) {
  test::TemporaryPath folder;
  const std::string out = folder / "out", step = out + "/checkpoints/step-20";
  make_file(step + "/index.json", "{}");
  fs::create_directory_symlink(out, folder / "link");
  const auto refusal = [&](auto change) {
    Config config;
    config.output.dir = out;
    change(config);
    return replacing_by(config);
  };
  EXPECT_EQ(refusal([](Config&) {}), "");
  EXPECT_EQ(refusal([&](Config& c) { c.model.path = step; }),
            concat("output.dir: ", out, "/checkpoints would be replaced, but model.path = ", step,
                   " is read; choose another output.dir"));
  for (const std::string& path : {folder / "link/checkpoints", out + "/../out/checkpoints/"})
    EXPECT_THAT(refusal([&](Config& c) { c.model.lora.path = path; }),
                AllOf(HasSubstr(out + "/checkpoints would be"),
                      HasSubstr(concat("lora.path = ", path, " (that is ",
                                       real_path(out + "/checkpoints"), ") is read"))));
  EXPECT_THAT(refusal([&](Config& c) { c.model.path = c.output.dir; }), HasSubstr("model.path"))
      << "a run's folder stands for its checkpoints";
  EXPECT_THAT(refusal([&](Config& c) {
                c.model.path = step;
                c.output.dir = folder / "link";
              }),
              HasSubstr("model.path"));
  EXPECT_THAT(refusal([&](Config& c) { c.data.text = {make_file(out + "/metrics.jsonl")}; }),
              AllOf(HasSubstr("data.text"), HasSubstr("/metrics.jsonl would be")));
  EXPECT_THAT(refusal([&](Config& c) { c.data.text = {out}; }), HasSubstr("data.text"));
  EXPECT_THAT(refusal([&](Config& c) { c.stage = {{.text = {make_file(out + "/logs/a.txt")}}}; }),
              HasSubstr("stage.text"));
  make_file(out + "/nonfinite-step-7/step-6/index.json");
  EXPECT_THAT(refusal([&](Config& c) { c.checkpoint.resume = out + "/nonfinite-step-7/step-6"; }),
              HasSubstr("checkpoint.resume"));
  EXPECT_EQ(refusal([&](Config& c) { c.checkpoint.resume = step; }), "") << "keeps its own";
  const std::string text = make_file(folder / "text.txt");
  EXPECT_THAT(refusal([&](Config& c) {
                c.data.validation = text;
                c.output.trace = text;
              }),
              AllOf(HasSubstr("output.trace: "), HasSubstr("data.validation = ")));
  EXPECT_THAT(refusal([&](Config& c) { c.output.trace = text; }),
              HasSubstr("output.trace " + text + " exists and is no such file"));
  EXPECT_THAT(refusal([&](Config& c) { c.training.tune_cache = c.data.tokenizer = text; }),
              HasSubstr("training.tune_cache"));
  EXPECT_EQ(refusal([&](Config& c) { c.model.path = make_file(folder / "hf/config.json"); }), "");
}

TEST(Inputs, AModelsFolderMayHoldARunButItsOwnFilesStay) {
  test::TemporaryPath folder;
  const std::string model = folder / "model";
  make_file(model + "/config.json", "{}");
  Config config;
  config.model.path = config.output.dir = model;
  make_file(model + "/config.toml");
  make_folders(model + "/checkpoints");
  EXPECT_EQ(replacing_by(config), "");
  const auto fault = [&](const std::string& file) {
    return fault_of_outputs({{"--json", model + '/' + file}}, {{"--model", model}});
  };
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    make_file(concat(model, '/', file));
    EXPECT_THAT(fault(file), HasSubstr(file));
  }
  make_file(model + "/scores.json");
  EXPECT_EQ(fault("scores.json"), "");
  EXPECT_EQ(fault("new.json"), "");
  make_file(model + "/index.json");  // a checkpoint, all of whose files belong to it
  EXPECT_THAT(fault("scores.json"), HasSubstr("--model"));
  EXPECT_THAT(replacing_by(config), HasSubstr("would be replaced, but model.path = "));
}

TEST(Inputs, AConfigIsReplacedOnlyIfThisProgramWroteIt) {
  test::TemporaryPath folder;
  Config config;
  config.output.dir = folder.path();
  config.file = make_file(folder / "config.toml", "# my own\n");
  EXPECT_THAT(replacing_by(config), AllOf(HasSubstr("CONFIG = "), HasSubstr("output.dir")));
  make_file(config.file, config_toml(config, {}));
  EXPECT_EQ(replacing_by(config), "");
}

TEST(Outputs, ThatExistAreReplacedOnlyIfThatIsAllowedAndResultsIfTheyAreOfTheirKind) {
  test::TemporaryPath folder;
  const std::string file = folder / "out";
  const auto claim = [&](bool overwrite) {
    return fault_of([&] { claim_output({"--out", file}, {}, overwrite); });
  };
  const auto result = [&](std::string_view begins) {
    return fault_of([&] { claim_result({"--json", file}, {}, begins); });
  };
  EXPECT_EQ(claim(false), "");
  test::spill(file, "");
  EXPECT_EQ(claim(false), "");
  EXPECT_EQ(result(kBeginsJson), "");
  test::spill(file, "{}");
  EXPECT_EQ(claim(false), "--out " + file + " exists already; --overwrite replaces it");
  EXPECT_EQ(claim(true), "");
  EXPECT_EQ(result(kBeginsJson), "");
  EXPECT_THAT(result(kBeginsMarkup), HasSubstr("is not replaced"));
  EXPECT_THAT(fault_of([&] {
                claim_output({"--out", file}, {{"--text", file}}, true);
              }),
              AllOf(HasSubstr("--out: "), HasSubstr("--text = ")));
  for (const bool overwrite : {false, true})
    EXPECT_NO_THROW(claim_output({"--out", "/dev/stdout"}, {}, overwrite));
  EXPECT_NO_THROW(claim_result({"--json", "/dev/null"}, {}, kBeginsJson));
}
