#include "axonn/plan/planner/machine/machine.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/run/config/resolve.h"

using namespace axonn;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// A file that the destructor removes.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(testing::TempDir() + "machine_test_" + std::to_string(getpid()) + ".toml") {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Machine machine_of(const std::string& text) { return read_machine(TemporaryFile(text).path()); }

/// The message of the UsageError for a file of this text.
std::string error_of(const std::string& text) {
  try {
    machine_of(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

const std::string kDevice =
    "[machine]\nmemory_bytes = 1e9\nmemory_bytes_per_s = 1e10\n"
    "attention_flops_per_s = 1e10\n[products_f32]\nflops_per_s = 1e11\n";

}  // namespace

TEST(ReadMachine, ReadsTheMachinesOfTheProgramByName) {
  EXPECT_THAT(machine_names(),
              ElementsAre("alps", "alps-paper", "dgx-a100", "dgx-a100-40", "dgx-b200", "dgx-b300",
                          "dgx-h100", "dgx-h200", "frontier", "frontier-paper", "gb200-nvl72",
                          "gb300-nvl72", "grand-teton", "mi300x", "mi325x", "mi355x", "perlmutter",
                          "perlmutter-paper"));
  for (const std::string& name : machine_names()) {
    SCOPED_TRACE(name);
    const Machine machine = read_machine(name);
    EXPECT_GT(machine.devices_per_node, 1);
    EXPECT_GT(machine.advertised_flops_per_s, machine.bf16.flops_per_s);
    EXPECT_GT(machine.f32.flops_per_s, 0);
    EXPECT_GT(machine.node_bytes_per_s, 0);
    EXPECT_FALSE(machine.source.empty());
    EXPECT_FALSE(machine.fitted.empty());
    EXPECT_GT(machine.jitter_s, 0);
    EXPECT_GT(machine.device_spread, 0);
  }
}

TEST(ReadMachine, HasTheGroupRatesThatThePaperMeasured) {
  const Machine frontier = read_machine("frontier");
  constexpr double kGiB = 0x1p30;
  EXPECT_THAT(frontier.groups,
              Contains(GroupRate{.inner = 1, .size = 8, .bytes_per_s = 135 * kGiB}));
  EXPECT_THAT(frontier.groups,
              Contains(GroupRate{.inner = 4, .size = 2, .bytes_per_s = 36 * kGiB}));
  EXPECT_THAT(read_machine("perlmutter").groups,
              Contains(GroupRate{.inner = 1, .size = 4, .bytes_per_s = 225 * kGiB}));
}

TEST(ReadMachine, ReadsTheTextOfToTomlBackUnchanged) {
  Machine machine = read_machine("frontier");
  machine.source = "a \"quoted\" source";
  machine.rowwise_bytes_per_s = {{"gelu", 1.0 / 3}, {"adamw", 2e9}};
  machine.groups.push_back(
      {.operation = "all_gather", .inner = 3, .size = 5, .latency_s = 1e-5, .bytes_per_s = 1.25e9});
  EXPECT_EQ(machine_of(to_toml(machine)), machine);
}

TEST(ReadMachine, AFileMayGiveOnlyWhatDiffersFromAnotherMachine) {
  Machine want = read_machine("perlmutter");
  want.reserve_bytes = 2e9;
  want.rowwise_bytes_per_s["gelu"] = 1e12;
  want.groups.push_back({.inner = 1, .size = 4, .bytes_per_s = 2e11});
  const Machine machine = machine_of(
      "[like]\nmachine = \"perlmutter\"\n[machine]\nreserve_bytes = 2e9\n"
      "[rowwise]\ngelu = 1e12\n"
      "[[group]]\ninner = 1\nsize = 4\nbytes_per_s = 2e11\n");
  EXPECT_EQ(machine, want);
  EXPECT_THAT(error_of("[like]\nmachine = \"perlmuter\"\n"),
              HasSubstr("did you mean 'perlmutter'?"));
  Machine paper = read_machine("alps-paper");
  paper.reserve_bytes = 3e9;
  EXPECT_EQ(machine_of("[like]\nmachine = \"alps-paper\"\n[machine]\nreserve_bytes = 3e9\n"),
            paper);
  const TemporaryFile itself("");
  std::ofstream(itself.path()) << "[like]\nmachine = \"" << itself.path() << "\"\n";
  EXPECT_THAT([&] { read_machine(itself.path()); },
              testing::ThrowsMessage<UsageError>(HasSubstr("must lead to a complete file")));
}

TEST(ReadMachine, ReportsAnUnknownKeyWithItsPlaceAndASuggestion) {
  EXPECT_THAT(error_of("[machine]\nmemory_byts = 1\n"),
              AllOf(HasSubstr(".toml:2:1"), HasSubstr("did you mean 'memory_bytes'?")));
  EXPECT_THAT(error_of("[[group]]\ninner = 1\n[[group]]\nsizes = 2\n"),
              AllOf(HasSubstr(".toml:4:1"), HasSubstr("did you mean 'size'?")));
  EXPECT_THAT(error_of("[group]\nsize = 2\n"), HasSubstr("write each as [[group]]"));
  EXPECT_THAT(error_of("[groups]\nsize = 2\n"), HasSubstr("did you mean [group]?"));
  EXPECT_THAT(error_of("[[group]]\noperation = \"all_gahter\"\n"),
              HasSubstr("did you mean 'all_gather'?"));
}

TEST(ReadMachine, SuggestsASimilarNameOrListsAll) {
  EXPECT_THAT([] { read_machine("frontir"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("did you mean 'frontier'?")));
  EXPECT_THAT([] { read_machine("abacus"); },
              testing::ThrowsMessage<UsageError>(
                  HasSubstr("alps, alps-paper, dgx-a100, dgx-a100-40, dgx-b200, dgx-b300")));
  EXPECT_THAT([] { read_machine("none/abacus.toml"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("cannot read 'none/abacus.toml'")));
}

TEST(ReadMachine, RefusesAMachineWithoutTheFiguresThatPlansNeed) {
  EXPECT_THAT(error_of(""), HasSubstr("memory_bytes is missing"));
  EXPECT_THAT(error_of(kDevice), HasSubstr("it has no bandwidth"));
  EXPECT_THAT(error_of("[machine]\ndevices_per_node = 0\n"), HasSubstr("at least 1, got 0"));
  EXPECT_THAT(error_of("[machine]\nmemory_bytes = 1e9\nmemory_bytes_per_s = 1e10\n"
                       "[links]\nnode_bytes_per_s = 1e9\n"),
              HasSubstr("flops_per_s is missing"));
  EXPECT_THAT(error_of(kDevice + "[links]\nnode_bytes_per_s = 1e9\n"), "no error");
  EXPECT_THAT(error_of("[links]\nnode_bytes_per_s = 1e9\n" + kDevice + "half_k = -1\n"),
              HasSubstr("half_k wants a number of at least 0"));
  const std::string in_pairs =
      "[links]\nnode_bytes_per_s = 1e9\n" + kDevice + "[[group]]\ninner = 2\nsize = 2\n";
  EXPECT_THAT(error_of(in_pairs), HasSubstr("a [[group]] has no bytes_per_s"));
}

TEST(ReadMachine, KnowsARateForEveryMemoryBoundOperationOfAStep) {
  std::set<std::string> known;  // the keys of [rowwise], all commented out: "# gelu = 0.0"
  std::istringstream text(to_toml(Machine{}));
  for (std::string line, section; std::getline(text, line);) {
    if (line.starts_with('[')) section = line;
    if (section.starts_with("[rowwise]") && line.starts_with("# "))
      known.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  std::set<std::string> missing;
  for (const ModelFamily family : {ModelFamily::gpt, ModelFamily::llama}) {
    Config config;
    config.model = {.family = family, .layers = 2, .hidden = 64, .heads = 4, .vocab = 128};
    config.model.qk_norm = QkNormKind::head;
    if (family == ModelFamily::llama) config.model.lora = {.rank = 2, .dropout = 0.1};
    config.training = {.steps = 1, .seq_len = 16, .global_batch = 4, .dtype = DType::bf16};
    config.optimizer.lr = 1e-3;
    config.data.synthetic = 20'000;
    config.parallelism.set_grid({2, 2, 1, 1});
    const Recording recording = dry_step(prepared(config), 0, {.recording = true}).recording;
    ASSERT_FALSE(recording.events.empty());
    for (const Recording::Event& event : recording.events)
      if (const auto* operation = std::get_if<Recording::Compute>(&event))
        if (operation->flops == 0 && !known.contains(operation->operation))
          missing.insert(operation->operation);
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}
