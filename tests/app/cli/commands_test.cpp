#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/standard_output.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/build_paths.h"
#include "tests/support/data_files.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

struct Outcome {
  int code = 0;
  std::string out, err;  ///< what was printed
  std::string refusal;   ///< the UsageError's message
};

Outcome run(const Arguments& arguments) {
  Outcome outcome;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    outcome.code = run_axonn(arguments);
  } catch (const UsageError& error) {
    outcome.code = kUsageError;
    outcome.refusal = error.what();
  }
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

}  // namespace

TEST(Program, BreaksLinesOfHelpForNarrowTerminals) {
  EXPECT_EQ(broken_lines("short\n\n  --flag TEXT   one two three four\n", 24),
            "short\n\n  --flag TEXT   one two\n                three\n"
            "                four\n");
  EXPECT_EQ(broken_lines("      a sentence without a gap\n", 20),
            "      a sentence\n      without a gap\n");
  const std::string path = "/a/path/without/any/spaces";
  EXPECT_EQ(broken_lines(path + " " + path + "\n", 20), path + "\n" + path + "\n");
  EXPECT_EQ(broken_lines("  x  " + path + "\n", 20), "  x  " + path + "\n");
}

TEST(Program, ListsEveryCommandInItsHelpAndEveryCommandHasHelp) {
  const std::string help = run({}).out;
  EXPECT_EQ(run({"--help"}).out, help);
  for (const Command& command : commands()) {
    EXPECT_THAT(help, HasSubstr(std::string(command.summary)));
    const Outcome own = run({std::string(command.name), "--help"});
    EXPECT_EQ(own.code, 0) << command.name;
    EXPECT_THAT(own.out, HasSubstr("axonn " + std::string(command.name))) << command.name;
    EXPECT_THAT(run({"help", std::string(command.name)}).out, HasSubstr(own.out));
    // CLI11 keeps them as a set of pointers, so two would be in any order.
    EXPECT_THAT(own.out, Not(testing::ContainsRegex("(Excludes|Needs): --[a-z_]+ --")))
        << command.name;
  }
}

TEST(Bench, TakesOneMeasurement) {
  EXPECT_THAT(run({"bench", "--overlap", "--profile"}).refusal, HasSubstr("give one of them"));
  EXPECT_THAT(run({"bench", "--scaling", "weak", "--overlap"}).refusal,
              HasSubstr("give one of them"));
}

TEST(Program, GuessesAMistypedCommand) {
  EXPECT_EQ(run({"trian"}).refusal, "there is no command 'trian'; did you mean 'train'?");
  EXPECT_THAT(run({"bake"}).refusal, HasSubstr("the commands are train"));
}

TEST(Program, PrintsItsVersion) {
  EXPECT_THAT(run({"--version"}).out, HasSubstr("axonn 0."));
  EXPECT_EQ(run({"-V"}).out, run({"--version"}).out);
  EXPECT_EQ(run({"version"}).out, run({"--version"}).out);
}

namespace {

/// What bash offers for the last word of a command line.
std::string offered(const std::string& script, const std::string& line) {
  const std::string command = "bash -c '. " + script + "; COMP_WORDS=(" + line +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _axonn; "
                              "echo \"${COMPREPLY[*]}\"'";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  ::pclose(pipe);
  return text;
}

}  // namespace

TEST(Completion, OfBashCompletesACommandAFlagAKeyAndAFile) {
  const test::TemporaryPath folder;
  const std::string script = folder / "axonn.bash";
  std::ofstream(script) << run({"help", "--completion", "bash"}).out;
  EXPECT_EQ(offered(script, "axonn fine"), "finetune\n");
  EXPECT_EQ(offered(script, "axonn plan --batch-t"), "--batch-tokens\n");
  EXPECT_EQ(offered(script, "axonn train --training.micro"), "--training.micro_batch\n");
  EXPECT_EQ(offered(script, "axonn help optimizer.lr"), "optimizer.lr\n");
  EXPECT_EQ(offered(script, "axonn data synth"), "synthetic\n");
  EXPECT_EQ(offered(script, "axonn train " + (folder / "axonn.b")), script + "\n");
}

TEST(Completion, OfZshAndFishAndTheManPageNameEveryCommand) {
  for (const Arguments& flags :
       {Arguments{"--completion", "zsh"}, Arguments{"--completion", "fish"}, Arguments{"--man"}}) {
    Arguments arguments = {"help"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const std::string text = run(arguments).out;
    for (const Command& command : commands())
      EXPECT_THAT(text, HasSubstr(std::string(command.name))) << flags.back();
    EXPECT_THAT(text, HasSubstr(flags.back() == "--man" ? ".TH AXONN 1" : "--training.seed"));
  }
}

TEST(Program, ExitsWithTwoOnUsageErrorsAndPrintsThemToStderrOnly) {
  const auto shell = [](const std::string& arguments, const std::string& redirect) {
    const std::string command = test::program() + ' ' + arguments + ' ' + redirect;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    return std::pair(WEXITSTATUS(::pclose(pipe)), text);
  };
  EXPECT_EQ(shell("--version", "").first, 0);
  EXPECT_EQ(shell("train no-such.toml", "2>/dev/null"), std::pair(kUsageError, std::string()));
  EXPECT_THAT(shell("train no-such.toml", "2>&1").second,
              testing::StartsWith("error: cannot read 'no-such.toml': No such file or directory"));
}

TEST(Info, NamesTheBuildTheLibrariesAndTheDevices) {
  EXPECT_THAT(run({"info"}).out,
              AllOf(HasSubstr("oneDNN"), HasSubstr("MPI"), HasSubstr("compiler"),
                    HasSubstr("cores for this process"), HasSubstr("CUDA"), HasSubstr("HIP")));
}

TEST(Help, ExplainsKeysAndSectionsAndGuessesMistypedOnes) {
  EXPECT_THAT(run({"help", "training.micro-batch"}).out, HasSubstr("--training.micro_batch VALUE"));
  EXPECT_THAT(run({"help", "optimizer"}).out, HasSubstr("weight_decay"));
  EXPECT_EQ(run({"help", "lrr"}).refusal,
            "no key or section is called 'lrr'; did you mean [optimizer] lr?");
}

TEST(Train, ShowsEveryValueWithItsOriginInAnyOrderOfArguments) {
  const std::string config = test::source_folder() + "/configs/tiny.toml";
  for (const Arguments& arguments :
       {Arguments{"train", config, "--print-config", "--training.steps", "7"},
        Arguments{"train", "--training.steps=7", "--print-config", config},
        Arguments{"train", "--training.steps=7", "--config", config, "--print-config"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("\nsteps = 7 "), HasSubstr("# --training.steps\n"),
                                   HasSubstr("tiny.toml:"), HasSubstr("# default\n")));
    EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
  }
}

TEST(Train, TakesTheSizesOfANamedModelUnlessTheyAreSetExplicitly) {
  const Outcome outcome =
      run({"train", "--model.layers", "2", "--model.name", "llama-3.1-8b", "--print-config"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(testing::ContainsRegex("\nlayers = 2 +# --model.layers\n"),
                                 testing::ContainsRegex("\nffn = 14336 +# model.name\n"),
                                 testing::ContainsRegex("\nbias = true +# default\n")));
  EXPECT_EQ(run({"train", "--model.name", "lama-3.1-8b"}).refusal,
            "[model] name has no choice 'lama-3.1-8b' (--model.name); did you mean "
            "'llama-3.1-8b'?");
}

TEST(Train, WarnsOfAKeyWithoutEffect) {
  EXPECT_THAT(
      run({"train", "--print-config", "--optimizer.kind", "sgd", "--optimizer.beta1=0.5"}).err,
      HasSubstr("warning: optimizer.beta1 (--optimizer.beta1) has no effect"));
}

TEST(Train, SaysWhatIsWrongWithoutWarningsBeforeIt) {
  const Outcome outcome = run({"train", "--optimizer.kind", "sgd", "--optimizer.beta1=0.5"});
  EXPECT_THAT(outcome.refusal, HasSubstr("data"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("warning")));
}

TEST(Train, SuggestsFlagsForUnknownOnes) {
  EXPECT_EQ(run({"train", "--print-confg"}).refusal,
            "axonn train has no flag '--print-confg'; did you mean '--print-config'?");
  EXPECT_EQ(run({"train", "--steps", "5"}).refusal,
            "axonn train has no flag '--steps'; did you mean '--training.steps'?");
  EXPECT_EQ(run({"convert", "--model", "a", "--output", "b"}).refusal,
            "axonn convert has no flag '--output'; did you mean '--out'?")
      << "rather than that --out is required";
  EXPECT_EQ(run({"convert", "--model", "a"}).refusal, "axonn convert: --out is required");
  EXPECT_EQ(run({"train", "--training.stpes=5"}).refusal,
            "[training] has no key 'stpes' (--training.stpes); did you mean 'steps'?");
  EXPECT_THAT(run({"train", "a.toml", "b.toml"}).refusal,
              HasSubstr("cannot use the argument 'b.toml'"));
  EXPECT_THAT(run({"train", "no-such.toml"}).refusal, HasSubstr("cannot read 'no-such.toml'"));
}

TEST(Plan, AcceptsAHuggingFaceFolderOrItsConfigAsTheModel) {
  const std::filesystem::path folder =
      testing::TempDir() + "commands_test_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 256,
             "intermediate_size": 512, "vocab_size": 1000,
             "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512})";
  // 2 · (4 · 256² + 3 · 256 · 512 + 2 · 256) + 2 · 1000 · 256 + 256
  for (const std::filesystem::path& model : {folder, folder / "config.json"})
    EXPECT_THAT(run({"plan", "--model", model, "--machine", "alps", "--devices", "2",
                     "--batch-tokens", "4096", "--seq-len", "512"})
                    .out,
                HasSubstr("1,824,000 parameters"));
  std::filesystem::remove_all(folder);
}

TEST(Flags, AGridReplacesTheOneOfTheFileInEitherForm) {
  const test::TempFolder folder;
  const auto grid_of = [&](const std::string& file, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"train", folder.file("run.toml", file), "--print-config"});
    const std::string out = run(flags).out;
    std::string grid;
    for (const char* key : {"\ngrid = ", "\nx = ", "\ny = ", "\nz = ", "\ndata = "}) {
      const std::size_t at = out.find(key) + std::string(key).size();
      grid += out.substr(at, out.find(' ', at) - at) + ' ';
    }
    return grid;
  };
  const std::string extents = "[parallelism]\nx = 2\ny = 1\nz = 1\ndata = 2\n",
                    named = "[parallelism]\ngrid = \"2,1,1,2\"\n";
  EXPECT_EQ(grid_of(extents, {"--parallelism.grid", "1,1,2,2"}), "\"1,1,2,2\" 1 1 1 1 ");
  EXPECT_EQ(grid_of(extents, {"--parallelism.z", "4"}), "\"\" 2 1 4 2 ");
  EXPECT_EQ(grid_of(named, {"--parallelism.z", "4", "--parallelism.x", "1"}), "\"\" 1 1 4 2 ");
  EXPECT_EQ(grid_of(named, {"--parallelism.grid", "auto"}), "\"auto\" 1 1 1 1 ");
  EXPECT_THAT(run({"train", folder.file("run.toml", named + "x = 1\ny = 2\n")}).refusal,
              HasSubstr("contradicts x 1, y 2"));
}

TEST(Flags, ASourceOfDataReplacesTheOneOfTheFile) {
  const std::string config = test::source_folder() + "/configs/tiny.toml";
  const Outcome outcome = run({"train", config, "--print-config", "--data.text", "book.txt"});
  EXPECT_THAT(outcome.err, HasSubstr("note: --data.text replaces data.synthetic (" + config + ":"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("text = [\"book.txt\"]"), HasSubstr("synthetic = 0 ")));
  EXPECT_THAT(run({"train", config, "--data.text", "a", "--data.synthetic", "9"}).refusal,
              HasSubstr("exclude one another"))
      << "two flags contradict each other";
}
