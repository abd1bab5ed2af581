// The commands as a user runs them, on a small model.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/foundation/base/host.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

namespace {

using Arguments = std::vector<std::string>;

/// The values that a run computed in each step, without its times.
std::vector<std::pair<double, double>> losses_and_norms(const std::vector<std::string>& metrics) {
  std::vector<std::pair<double, double>> values;
  for (const std::string& line : metrics) {
    const auto entry = nlohmann::json::parse(line);
    values.emplace_back(entry.at("loss"), entry.at("grad_norm"));
  }
  return values;
}

Finished succeed(const Arguments& arguments, const ProgramOptions& options = {}) {
  const Finished finished = run_program(arguments, options);
  EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
  return finished;
}

Finished refuse(const Arguments& arguments) {
  const Finished finished = run_program(arguments);
  EXPECT_EQ(finished.code, kUsageError) << finished.out;
  EXPECT_EQ(finished.errors().size(), 1u) << finished.err;
  return finished;
}

}  // namespace

TEST(TrainCommand, TheResolvedConfigReproducesTheRunBitForBit) {
  const SmallRun run;
  succeed(run.train({"--parallelism.x", "2", "--training.seed", "5"}));
  const auto first = losses_and_norms(run.metrics());
  const std::string weights = test::slurp(run.out() + "/checkpoints/step-6/rank-00001.safetensors");
  const std::string config = run / "again.toml";
  std::filesystem::copy_file(run.out() + "/config.toml", config);
  std::filesystem::remove_all(run.out());
  const Finished again = succeed({"train", config});
  EXPECT_THAT(again.complaints(), IsEmpty());
  EXPECT_EQ(losses_and_norms(run.metrics()), first);
  EXPECT_EQ(test::slurp(run.out() + "/checkpoints/step-6/rank-00001.safetensors"), weights);
  EXPECT_FALSE(weights.empty());
}

TEST(TrainCommand, MpiAndThreadsAgreeBitForBit) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  succeed(run.train({"--parallelism.z", "2"}));
  const auto threads = losses_and_norms(run.metrics());
  succeed(run.train({"--parallelism.z", "2", "--output.overwrite"}), {.ranks = 2});
  EXPECT_EQ(losses_and_norms(run.metrics()), threads);
}

TEST(ReplayCommand, RepeatsTheStepWhoseLossWasNanWithThreadsAndMpi) {
  for (const int ranks : {0, 2}) {
    if (ranks > 0 && !no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
    const SmallRun run;
    const Finished trained = run_program(
        run.train({"--parallelism.x", "2", "--optimizer.lr", "1e30"}), {.ranks = ranks});
    EXPECT_EQ(trained.code, kFailed);
    const std::string error = trained.errors().empty() ? "" : trained.errors().front(),
                      saved = run.out() + "/nonfinite-step-2";
    const std::size_t begin = error.find("arose first "), end = error.find("; the parameters");
    ASSERT_NE(begin, error.npos) << trained.err;
    EXPECT_THAT(error, HasSubstr("axonn replay " + saved + " repeats the step"));

    std::filesystem::remove_all(run.out() + "/cache");
    const Finished again = run_program({"replay", saved}, {.ranks = ranks});
    EXPECT_EQ(again.code, kFailed) << again.err;
    EXPECT_THAT(again.out,
                AllOf(StartsWith("step 2: loss "),
                      HasSubstr("arises first " + error.substr(begin + 12, end - begin - 12))));
  }
  const SmallRun run;
  succeed(run.train());
  EXPECT_THAT(refuse({"replay", run.out() + "/checkpoints"}).err, HasSubstr("has no batch.json"));
}

TEST(TrainCommand, HeadsThatXDoesNotDivideAreSaidAtTheStart) {
  const SmallRun run;
  const Finished finished = run_program(run.train({"--parallelism.x", "3"}));
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("grid: x = 3 computes 6 heads, of which the model has 4\n"));
}

TEST(TrainCommand, ThePrintedConfigIsReadBackUnchanged) {
  const SmallRun run;
  const std::string printed = succeed(run.train({"--print-config", "--optimizer.lr", "0.1"})).out;
  test::spill(run / "printed.toml", printed);
  const std::string again = succeed({"train", run / "printed.toml", "--print-config"}).out;
  const auto without_origins = [](std::string text) {
    for (std::size_t at; (at = text.find('#')) != text.npos;)
      text.erase(at, text.find('\n', at) - at);
    std::erase(text, ' ');
    return text;
  };
  EXPECT_EQ(without_origins(again), without_origins(printed));
  EXPECT_THAT(printed, HasSubstr("# --optimizer.lr"));
  EXPECT_FALSE(std::filesystem::exists(run.out()));
}

TEST(TrainCommand, ADryRunShowsMemoryDiskAndASampleAndWritesNothing) {
  const SmallRun run;
  const Finished finished = succeed(run.train(
      {"--dry-run", "--rank", "1023", "--parallelism.x", "4", "--parallelism.y", "2",
       "--parallelism.z", "16", "--parallelism.data", "8", "--training.global_batch", "128"}));
  EXPECT_THAT(
      finished.out,
      AllOf(HasSubstr("1,024 ranks; this is rank 1023 (x 3, y 1, z 15, data 7)"),
            HasSubstr("at the peak of a step: exact"), HasSubstr("  parameters\n"),
            HasSubstr("  optimizer\n"), HasSubstr("  activations\n"), HasSubstr(" per checkpoint"),
            HasSubstr("input   \""), HasSubstr("target  \"")));
  EXPECT_FALSE(std::filesystem::exists(run.out()));
  EXPECT_THAT(refuse(run.train({"--dry-run", "--rank", "1"})).err,
              HasSubstr("--rank 1 is not on grid 1,1,1,1: ranks are 0 to 0"));
  EXPECT_THAT(refuse(run.train({"--rank", "0"})).err, HasSubstr("--dry-run"));
}

TEST(TrainCommand, ADryRunFindsTooLittleMemoryHereOrOnTheMachineThatIsNamed) {
  const SmallRun run;
  const std::vector<std::string> many{"--dry-run", "--parallelism.data", "1048576",
                                      "--training.global_batch", "1048576"};
  const Finished here = run_program(run.train(many));
  EXPECT_EQ(here.code, kFailed);
  EXPECT_THAT(here.err, HasSubstr("error: too little memory: 1048576 ranks need "));
  EXPECT_THAT(here.out, AllOf(HasSubstr("of this machine"), Not(HasSubstr("No problem"))));
  std::vector<std::string> there = many;
  there.insert(there.end(), {"--parallelism.machine", "dgx-h100"});
  EXPECT_THAT(run_program(run.train(there)).out, HasSubstr("1 rank needs "));

  const std::string missing =
      refuse(run.train({"--dry-run", "--model.path", run / "Llama-3.2-1B"})).err;
  EXPECT_THAT(missing, AllOf(HasSubstr("there is no " + run / "Llama-3.2-1B"),
                             HasSubstr("--model.name llama-3.2-1b --data.synthetic 1MB")));
  EXPECT_THAT(refuse(run.train({"--model.path", run / "Llama-3.2-1B"})).err,
              Not(HasSubstr("--model.name")));
}

TEST(TrainCommand, ReplacesItsConfigOnlyIfItWroteIt) {
  const SmallRun run;
  const std::string config = run.out() + "/config.toml", mine = test::slurp(run.config());
  std::filesystem::create_directories(run.out());
  test::spill(config, mine);
  EXPECT_THAT(refuse({"train", config}).err,
              AllOf(HasSubstr("output.dir: "), HasSubstr("CONFIG = " + config)));
  EXPECT_EQ(test::slurp(config), mine);
  succeed(run.train({"--output.dir", run / "other"}));
  succeed({"train", run / "other/config.toml", "--output.overwrite"});
}

TEST(CheckCommand, ComparesGridsInATable) {
  const SmallRun run;
  const Finished finished =
      succeed({"check", run.config(), "--grids", "1,1,1,1 2,2,1,1 1,1,2,2", "--steps", "3"});
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("2,2,1,1"), HasSubstr("1,1,2,2"), HasSubstr("all grids agree")));
  EXPECT_THAT(refuse({"check", run.config(), "--grids", "1,1,1 2,2,1,1"}).err,
              HasSubstr("a grid is four positive integers x,y,z,data, such as 2,1,2,1"));
  EXPECT_THAT(refuse({"check", run.config(), "--grids", "1,1,1,1"}).err,
              HasSubstr("at least two grids"));
  EXPECT_THAT(refuse({"check", run.config(), "--grids", "1,1,1,1 1,3,1,1"}).err,
              HasSubstr("y must be one of 1, 2, 4, 8, 16"));
}

TEST(CheckCommand, ComputesAsAnOlderCpuWithIsa) {
  const SmallRun run;
  const Arguments check{"check", run.config(), "--steps",        "2", "--training.dtype",
                        "bf16",  "--grids",    "1,1,1,1 1,1,2,1"};
  auto limited = check, unknown = check;
  limited.insert(limited.end(), {"--isa", "avx2"});
  unknown.insert(unknown.end(), {"--isa", "avx3"});
  EXPECT_THAT(succeed(limited).out, HasSubstr(", products AVX2\n"));
  EXPECT_THAT(refuse(unknown).err, HasSubstr("avx3 not in {plain,avx2,avx512,avx512-bf16,amx}"));
  const Finished info = run_program({"info"}, {.environment = {{"DNNL_MAX_CPU_ISA", "AVX2"}}});
  EXPECT_THAT(info.out, HasSubstr(", products AVX2; bf16 is multiplied as f32"));
}

TEST(TrainCommand, RefusesProcessorsThatDifferAndNamesTheHosts) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  // Expects that the run is refused if rank 1 is started by this command.
  const auto expect_refused = [&](const std::string& command, const auto&... parts) {
    const Finished mixed = run_program(
        run.train({"--parallelism.z", "2"}),
        {.ranks = 2,
         .wrapper = {"/bin/sh", "-c",
                     "[ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" = 1 ] && " + command + " exec \"$@\"",
                     "sh"}});
    EXPECT_EQ(mixed.code, kFailed);
    ASSERT_THAT(mixed.errors(), testing::SizeIs(1)) << mixed.err;
    EXPECT_THAT(mixed.errors().front(),
                AllOf(HasSubstr("failed on rank 1: "), HasSubstr(parts)...));
  };
  const std::string host = host_name();
  expect_refused("export DNNL_MAX_CPU_ISA=SSE41;", host + " computes with kernels ",
                 "products SSE4.1 (", ", but rank 0 on " + host + " with kernels ",
                 "DNNL_MAX_CPU_ISA");
  if (std::filesystem::exists("/usr/bin/setarch"))  // which changes what uname says
    expect_refused("exec /usr/bin/setarch i686 \"$@\";",
                   "the program on " + host + " is built for i686 with",
                   ", but that of rank 0 on " + host + " for " + machine_name() + " with",
                   "the same program on hosts of one architecture");
}

TEST(TrainCommand, ATaskOfSlurmThatMpiLeavesAloneIsRefusedAndWritesNothingAsInOtherCommands) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  test::spill(run / "text.txt", "some text");
  const auto as_task = [](const Arguments& arguments, const std::string& tasks) {
    return run_program(arguments, {.environment = {{"SLURM_PROCID", tasks == "1" ? "0" : "1"},
                                                   {"SLURM_STEP_NUM_TASKS", tasks},
                                                   {"SLURM_STEP_TASKS_PER_NODE", tasks}}});
  };
  const std::string tokens = run / "tokens.bin";
  const Arguments tokenize{"data", "tokenize", "--text", run / "text.txt", "--out", tokens},
      memorize{"memorize", run.config(),        "--training.seq_len",
               "128",      "--memorize.losses", "standard"};
  for (const Arguments& command : {run.train(), tokenize, memorize}) {
    const Finished lone = as_task(command, "4");
    EXPECT_EQ(lone.code, kUsageError) << lone.out << lone.err;
    EXPECT_THAT(lone.errors(),
                ElementsAre(AllOf(HasSubstr("has started 4 processes"), HasSubstr("has 1 rank"),
                                  HasSubstr("srun --mpi=pmix"))));
  }
  EXPECT_FALSE(std::filesystem::exists(run.out()));
  EXPECT_FALSE(std::filesystem::exists(tokens));
  EXPECT_EQ(as_task(run.train(), "1").code, 0);
}

TEST(BenchCommand, MeasuresAGridAndWritesTheFigures) {
  const SmallRun run;
  const Finished finished = succeed({"bench", run.config(), "--json", run / "bench.json",
                                     "--parallelism.z", "2", "--parallelism.peak_tflops", "1"});
  EXPECT_THAT(finished.out, AllOf(HasSubstr("tokens/s"), HasSubstr("% of the product peak"),
                                  HasSubstr("% of the advertised peak, 2.000 Tflop/s"),
                                  HasSubstr("exact on every rank"), HasSubstr("gathered blocks")));
  const auto written = nlohmann::json::parse(test::slurp(run / "bench.json"));
  EXPECT_EQ(written["step_s_each"].size(), 10u);
  EXPECT_EQ(written["memory"]["measured_bytes"], written["memory"]["predicted_bytes"]);
}

TEST(BenchCommand, ScalingMeasuresEachGridAndDrawsTheCurve) {
  const SmallRun run;
  const Finished finished =
      succeed({"bench", run.config(), "--scaling", "weak", "--ranks", "1,2", "--grow", "z", "--svg",
               run / "weak.svg", "--json", run / "weak.json"});
  EXPECT_THAT(finished.out,
              AllOf(StartsWith("x,y,z,data "), HasSubstr("\n1,1,1,1 "), HasSubstr("\n1,1,2,1 "),
                    HasSubstr("curve: " + (run / "weak.svg"))));
  EXPECT_THAT(test::slurp(run / "weak.svg"), HasSubstr("weak scaling: "));
  EXPECT_EQ(nlohmann::json::parse(test::slurp(run / "weak.json"))["points"].size(), 2u);
  EXPECT_THAT(refuse({"bench", run.config(), "--grids", "1,1,1,1"}).err, HasSubstr("--scaling"));
  EXPECT_THAT(succeed({"bench", run.config(), "--scaling", "strong", "--grids", "1,1,1,1"}).out,
              testing::Not(HasSubstr("curve")))
      << "no file that was not asked for";
  EXPECT_THAT(
      refuse({"bench", run.config(), "--scaling", "strong", "--grids", "1,1,1,1 1,3,1,1"}).err,
      AllOf(HasSubstr("grid 1,3,1,1"), HasSubstr("y must be one of 1, 2, 4, 8, 16")));
}

TEST(BenchCommand, ScalingUnderALauncherRunsTheGridsThatFitAndNamesTheOthers) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  const Finished finished = succeed({"bench", run.config(), "--scaling", "strong", "--grids",
                                     "1,1,1,1 2,1,1,1 2,2,1,1", "--svg", run / "strong.svg"},
                                    {.ranks = 2});
  EXPECT_THAT(finished.out, AllOf(HasSubstr("\n1,1,1,1 "), HasSubstr("\n2,1,1,1 ")));
  EXPECT_THAT(finished.out, testing::Not(HasSubstr("2,2,1,1")));
  EXPECT_THAT(finished.err,
              HasSubstr("warning: the launcher started 2 ranks; left out: 2,2,1,1 of 4 ranks"));
  const Finished none = run_program({"bench", run.config(), "--scaling", "strong", "--grids",
                                     "2,2,1,1", "--svg", run / "none.svg"},
                                    {.ranks = 2});
  EXPECT_EQ(none.code, kUsageError);
  EXPECT_THAT(none.errors(), ElementsAre(HasSubstr("too few for any grid: 2,2,1,1 of 4 ranks")));
}

TEST(GenerateCommand, WritesTheSameTextOnEveryGridAtAnyTemperature) {
  const SmallRun run;
  succeed(run.train({"--training.steps", "60"}));
  const std::string checkpoints = run.out() + "/checkpoints";
  for (const char* temperature : {"0", "0.8"}) {
    std::string expected;
    for (const char* grid : {"1,1,1,1", "2,1,1,1", "2,2,1,1", "1,1,2,2", "4,1,2,1"}) {
      const Finished finished =
          succeed({"generate", "--model", checkpoints, "--prompt", "The town of", "--tokens", "30",
                   "--temperature", temperature, "--grid", grid});
      EXPECT_THAT(finished.out, StartsWith("The town of"));
      EXPECT_GT(finished.out.size(), 40u);
      if (expected.empty()) expected = finished.out;
      EXPECT_EQ(finished.out, expected) << grid;
    }
  }
  EXPECT_THAT(refuse({"generate", "--model", run / "none"}).err, HasSubstr(run / "none"));
  EXPECT_THAT(refuse({"generate", "--model", checkpoints, "--grid", "1,3,1,1"}).err,
              HasSubstr("y must be one of 1, 2, 4, 8, 16"));
  EXPECT_THAT(refuse({"generate", "--model", checkpoints, "--prompt", ""}).err,
              HasSubstr("--prompt is empty"));
}

TEST(DataCommand, TokenizesAndShowsWhatItWrote) {
  const SmallRun run;
  test::spill(run / "book.txt", "Call me Ishmael.\n");
  succeed({"data", "tokenize", "--tokenizer", "bytes", "--text", run / "book.txt", "--out",
           run / "book.bin"});
  const Finished shown = succeed({"data", "show", run / "book.bin", "--tokenizer", "bytes"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("tokens     17"), HasSubstr("67 97 108 108 32 109"),
                               HasSubstr("\"Call me Ishmael.\\n\"")));
  EXPECT_THAT(refuse({"data", "show", run / "none.bin"}).err, HasSubstr("none.bin"));
  test::spill(run / "lines.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"defg\"}\n");
  const std::vector<std::string> show{"data",      "show", run / "lines.jsonl",
                                      "--seq-len", "6",    "--document-mode"};
  const auto with = [&](const std::string& mode) {
    std::vector<std::string> words = show;
    words.push_back(mode);
    return succeed(words).out;
  };
  EXPECT_THAT(with("packed"),
              HasSubstr("sequences  1 of 6 tokens\ninputs     5, and 1 rows of padding (16.7 %)\n"
                        "learned    5 targets\n"));
  EXPECT_THAT(with("packed"), HasSubstr("  rows 0 to 2: d«efg»\n  rows 3 to 4: a«bc»\n"
                                        "  rows 5 to 5: padding\n"));
  EXPECT_THAT(with("separate"), HasSubstr("  rows 0 to 2: a«bc»\n  rows 3 to 5: d«efg»\n"));
  EXPECT_THAT(with("apertus"), HasSubstr("  rows 0 to 5: a«bc»d«efg»\n"));
  EXPECT_THAT(with("joined"), HasSubstr("  rows 0 to 5: a«bcdefg»\n"));
  test::spill(run / "blank.jsonl", "\n");
  EXPECT_THAT(
      refuse({"data", "tokenize", "--text", run / "blank.jsonl", "--out", run / "blank"}).err,
      HasSubstr("blank.jsonl: no text to tokenize"));
  test::spill(run / "empty.jsonl", "{\"text\": \"\"}\n{\"text\": \"\"}\n");
  EXPECT_THAT(
      refuse({"data", "tokenize", "--text", run / "empty.jsonl", "--out", run / "empty"}).err,
      HasSubstr("empty.jsonl: no text to tokenize; all documents are empty"));
  EXPECT_THAT(refuse({"data", "show", run / "book.txt"}).err, HasSubstr("book.txt"));
  EXPECT_THAT(refuse({"data", "tokenize", "--text", run / "none.txt", "--out", run / "o.bin"}).err,
              HasSubstr("none.txt"));
  EXPECT_THAT(refuse({"data", "tokenize", "--text", run / "book.txt"}).err, HasSubstr("--out"));
  const std::string before = test::slurp(run / "book.bin");
  for (const char* command : {"tokenize", "synthetic"}) {
    std::vector<std::string> again{"data", command, "--out", run / "book.bin"};
    if (command == std::string("tokenize")) again.insert(again.end(), {"--text", run / "book.txt"});
    EXPECT_THAT(refuse(again).err, HasSubstr("book.bin exists already; --overwrite replaces it"));
    EXPECT_EQ(test::slurp(run / "book.bin"), before);
    again.emplace_back("--overwrite");
    succeed(again);
  }
  EXPECT_THAT(refuse({"data", "shove"}).err, HasSubstr("tokenize, show and synthetic"));
}

TEST(Help, EveryCommandGivesExamples) {
  for (const Command& command : commands())
    EXPECT_THAT(succeed({std::string(command.name), "--help"}).out,
                AllOf(HasSubstr("Example"), HasSubstr("axonn " + std::string(command.name))));
  EXPECT_THAT(succeed({"help", "optimizer.lr"}).out, HasSubstr("--optimizer.lr"));
  EXPECT_THAT(refuse({"trian"}).err, HasSubstr("did you mean 'train'?"));
}

TEST(Output, HasNoControlCodesWithoutATerminalOrWithNoColor) {
  const SmallRun run;
  for (const ProgramOptions& options :
       {ProgramOptions{}, ProgramOptions{.environment = {{"NO_COLOR", "1"}}}})
    for (const Arguments& arguments :
         {run.train({"--output.overwrite"}), run.train({"--output.overwrite", "--dry-run"}),
          run.train({"--print-config"}), Arguments{"info"}, Arguments{"help"},
          Arguments{"train", "--help"},
          Arguments{"check", run.config(), "--steps", "2", "--grids", "1,1,1,1 1,1,2,1"},
          Arguments{"data", "synthetic", "--bytes", "100000", "--out", run / "text.txt",
                    "--overwrite"},
          Arguments{"data", "tokenize", "--text", run / "text.txt", "--out", run / "text.bin",
                    "--overwrite"},
          Arguments{"generate", "--model", run.out() + "/checkpoints", "--temperature", "0"}}) {
      const Finished finished = succeed(arguments, options);
      for (const char code : {'\x1b', '\r', '\b', '\a'}) {
        EXPECT_EQ(finished.out.find(code), std::string::npos) << arguments.front();
        EXPECT_EQ(finished.err.find(code), std::string::npos) << arguments.front();
      }
    }
}
