// The commands that run a model, with --device cuda on emulated GPUs, against the CPU; and what
// device = "auto" takes.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;

namespace {

/// Between devices in f32: sums in another order.
constexpr double kBetweenDevices = 1e-5;

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Finished succeeded(const Arguments& arguments, const ProgramOptions& options = {}) {
  Finished finished = run_program(arguments, options);
  EXPECT_EQ(finished.code, 0) << finished.err;
  return finished;
}

/// Expects the values of two results to be equal: fractions within kBetweenDevices, all else
/// exactly. `where`: the path to them, for failures.
void expect_as_near_as_devices_are(const json& gpu, const json& cpu, const std::string& where) {
  if (cpu.is_number_float() && gpu.is_number_float()) {
    EXPECT_NEAR(gpu.get<double>(), cpu.get<double>(), kBetweenDevices) << where;
  } else if (cpu.is_structured() && gpu.type() == cpu.type() && gpu.size() == cpu.size()) {
    for (const auto& [key, value] : cpu.items()) {
      const json::json_pointer at("/" + key);
      ASSERT_TRUE(gpu.contains(at)) << where << " lacks " << key;
      expect_as_near_as_devices_are(gpu.at(at), value, where + "/" + key);
    }
  } else {
    EXPECT_EQ(gpu, cpu) << where;
  }
}

/// A model that was trained on the CPU, for all tests.
class CommandsOnGpus : public testing::Test {
 protected:
  CommandsOnGpus() {
    succeeded(trained_.train(
        {"--parallelism.device", "cpu", "--training.steps", "60", "--training.seq_len", "48"}));
  }

  Arguments model() const { return {"--model", trained_.out() + "/checkpoints"}; }

  /// The JSON that a command writes with these arguments.
  json result(const Arguments& arguments, const std::string& device) const {
    const std::string file = trained_ / (device + ".json");
    succeeded(arguments + model() + Arguments{"--device", device, "--json", file});
    return json::parse(test::slurp(file));
  }

  SmallRun trained_;
};

/// An environment in which `auto` takes the emulated GPUs.
ProgramOptions with_real_looking_gpus(const std::string& fails = "") {
  return {
      .environment = {{"AXONN_EMULATED_NAME", "Pretended GPU"}, {"AXONN_EMULATED_FAIL", fails}}};
}

}  // namespace

TEST_F(CommandsOnGpus, GenerateTheTokensOfTheCpu) {
  for (const char* grid : {"1,1,1,1", "2,1,1,1", "1,2,2,1"}) {
    const Arguments generate{"generate", "--prompt",
                             "The town", "--prompt",
                             "A",        "--tokens",
                             "30",       "--temperature",
                             "0",        "--repetition-penalty",
                             "1.5",      "--grid",
                             grid};
    const json cpu = result(generate, "cpu"), gpu = result(generate, "cuda");
    EXPECT_EQ(cpu.at("generations"), gpu.at("generations")) << grid;
  }
}

TEST_F(CommandsOnGpus, EvaluateWithTheLossOfTheCpu) {
  const std::string text = trained_ / "text.txt";
  test::spill(text, std::string(40, 'a') + " She wrote a letter to the town of Birchgate.\n");
  for (const char* grid : {"1,1,1,1", "1,1,2,1"}) {
    const Arguments eval{"eval", "--data", text, "--seq-len", "32", "--grid", grid};
    EXPECT_THAT(result(eval, "cuda").at("loss").get<double>(),
                DoubleNear(result(eval, "cpu").at("loss").get<double>(), kBetweenDevices));
  }
}

TEST_F(CommandsOnGpus, AuditWithTheFindingsOfTheCpu) {
  const std::string documents = trained_ / "documents.jsonl";
  succeeded({"data", "synthetic", "--records", "4", "--seed", "1", "--out", documents});
  const Arguments audit{"memorize", "--audit", "--documents",      documents,
                        "--suffix", "8",       "--prompt-lengths", "16"};
  const auto recitations = [&](const std::string& device) {
    return result(audit, device).at("runs").at(0).at("recitations");
  };
  const json cpu = recitations("cpu"), gpu = recitations("cuda");
  ASSERT_FALSE(cpu.empty());
  expect_as_near_as_devices_are(gpu, cpu, "recitations");
}

TEST_F(CommandsOnGpus, CheckComparesGridsWithOneRankOnTheCpu) {
  const Finished check = succeeded({"check", trained_.config(), "--parallelism.device", "cuda",
                                    "--steps", "3", "--grids", "1,1,1,1 2,1,1,1 1,1,2,2"});
  EXPECT_THAT(check.out, AllOf(HasSubstr("reference 1,1,1,1 on cpu"), HasSubstr("1,1,1,1 cuda"),
                               HasSubstr("1,1,2,2 cuda"), HasSubstr("all grids agree")));
}

TEST_F(CommandsOnGpus, ProbeMeasuresThemForAPlan) {
  const std::string file = trained_ / "machine.toml";
  for (const auto& [gpus, words] : {std::pair{"2", "a GPU each"}, {"1", "which share GPUs"}}) {
    const Finished probe = succeeded(
        {"probe", "--quick", "--ranks", "2", "--device", "cuda", "--out", file, "--overwrite"},
        {.environment = {{"AXONN_EMULATED_GPUS", gpus}}});
    EXPECT_THAT(probe.out, AllOf(HasSubstr("products bf16"), HasSubstr("all_reduce")));
    EXPECT_THAT(test::slurp(file), AllOf(HasSubstr("Emulated GPU"), HasSubstr(words)));
    EXPECT_THAT(succeeded({"plan", trained_.config(), "--machine", file, "--devices", "2"}).out,
                HasSubstr("2,1,1,1"));
  }
}

TEST_F(CommandsOnGpus, TrainOnTheGridOfAPlanThatTheyWereMeasuredFor) {
  const Finished trained = succeeded({"train", trained_.config(), "--output.overwrite",
                                      "--parallelism.device", "cuda", "--parallelism.grid", "auto"},
                                     {.environment = {{"AXONN_EMULATED_GPUS", "2"}}});
  EXPECT_THAT(trained.out + trained.err,
              AllOf(HasSubstr("measuring this machine"), HasSubstr("2 ranks, Emulated GPU each")));
}

TEST_F(CommandsOnGpus, TuneAndReplayAStepOnEitherDevice) {
  EXPECT_THAT(succeeded({"tune", trained_.config(), "--parallelism.device", "cuda",
                         "--training.tune_cache", trained_ / "products.json"})
                  .out,
              AllOf(ContainsRegex("f32 NT [0-9x]+.* default  "), HasSubstr("all products")));
  const SmallRun run;
  const Finished trained =
      run_program(run.train({"--parallelism.device", "cuda", "--optimizer.lr", "1e30"}));
  EXPECT_EQ(trained.code, kFailed);
  const std::string step = run.out() + "/nonfinite-step-2";
  EXPECT_THAT(trained.err, HasSubstr("axonn replay " + step));
  for (const Arguments& device : {Arguments{}, Arguments{"--device", "cpu"}}) {
    const Finished again = run_program(Arguments{"replay", step} + device);
    EXPECT_EQ(again.code, kFailed) << again.err;
    EXPECT_THAT(again.out, HasSubstr("NaN or infinity arises first in "));
  }
}

TEST(Info, TestsEveryGpu) {
  const ProgramOptions two{.environment = {{"AXONN_EMULATED_GPUS", "2"}}};
  EXPECT_THAT(succeeded({"info"}, two).out,
              AllOf(HasSubstr("GPU 1: Emulated GPU"), HasSubstr("passes the self-test"),
                    Not(HasSubstr("NOT")), HasSubstr("auto is cpu")));
  EXPECT_THAT(succeeded({"info"}, with_real_looking_gpus("cudaLaunchKernel:1")).out,
              AllOf(HasSubstr("does NOT work"), HasSubstr("auto is cuda")));
}

TEST(NetworkRules, AreToldByRunsThatUseNcclAndByInfo) {
  const SmallRun run;
  const ProgramOptions options{
      .environment = {{"AXONN_EMULATED_GPUS", "2"}, {"MPICH_GPU_SUPPORT_ENABLED", "1"}}};
  const auto output = [&](const std::string& transport) {
    return succeeded(run.train({"--output.overwrite", "--parallelism.device", "cuda",
                                "--parallelism.z", "2", "--parallelism.transport", transport}),
                     options)
        .out;
  };
  const std::string told =
      "MPICH_GPU_SUPPORT_ENABLED is \"1\"; export MPICH_GPU_SUPPORT_ENABLED=0: ";
  EXPECT_THAT(output("nccl"), HasSubstr(told));
  EXPECT_THAT(output("threads"), Not(HasSubstr(told)));
  EXPECT_THAT(succeeded({"info"}, options).out, HasSubstr(told));
}

TEST(AutomaticDevice, LeavesEmulatedGpusAlone) {
  const SmallRun run;
  const Finished trained = succeeded(run.train());
  EXPECT_THAT(trained.out, AllOf(HasSubstr("1 thread each"), Not(HasSubstr("GPU"))));
}

TEST(AutomaticDevice, IsAGpuThatPassesTheSelfTest) {
  const SmallRun run;
  EXPECT_THAT(succeeded(run.train({"--parallelism.x", "2"}), with_real_looking_gpus()).out,
              HasSubstr("2 ranks, Pretended GPU each"));
}

TEST(AutomaticDevice, IsTheCpuForAllIfOneRankCannotUseItsGpuAndSaysWhy) {
  const SmallRun run;
  const Finished trained =
      succeeded(run.train({"--parallelism.x", "2"}), with_real_looking_gpus("cudaLaunchKernel:3"));
  EXPECT_THAT(trained.out + trained.err,
              AllOf(HasSubstr("2 ranks, 1 thread each"),
                    HasSubstr("device = \"auto\" uses the CPU, because rank "),
                    HasSubstr("cannot use a GPU: ")));
}
