#include "tests/plan/published.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "axonn/base/check.h"

#include "tests/plan/paper_ranking.h"
#include "tests/plan/whole_step.h"

namespace axonn::testing_support {

namespace {

constexpr std::int64_t kTokens = 1 << 24, kSeqLen = 2048, kSequences = kTokens / kSeqLen;
constexpr std::size_t kTried = 10;    // best grids by the communication model that they ran
constexpr double kTuningGain = 1.03;  // published: tuning saves 2 to 4 % of a step
constexpr int kHeadWidth = 128;

struct Sizes {
  const char* name;
  std::int64_t layers, hidden;
  int least;  ///< fewest devices that hold the model, according to the authors
};
constexpr std::array<Sizes, 5> kSizes = {{{"5B", 24, 4096, 4},
                                          {"10B", 32, 5120, 8},
                                          {"20B", 32, 7168, 16},
                                          {"40B", 38, 9216, 32},
                                          {"80B", 42, 12288, 64}}};

const Sizes& sizes_of(const std::string& name) {
  const auto found =
      std::ranges::find(kSizes, name, [](const Sizes& s) { return std::string(s.name); });
  AXONN_CHECK(found != kSizes.end(), "no published model ", name);
  return *found;
}

/// The grids with powers of two that hold the model.
std::vector<GridShape> grids_for(const PublishedRun& run) {
  const Sizes& sizes = sizes_of(run.model);
  const std::int64_t heads = sizes.hidden / kHeadWidth;
  std::vector<GridShape> grids;
  for (int x = 1; x <= run.devices && heads % x == 0; x *= 2)
    for (int y = 1; x * y <= run.devices && heads % y == 0; y *= 2)
      for (int z = 1; x * y * z <= run.devices; z *= 2)
        if (x * y * z >= sizes.least && run.devices / (x * y) <= kSequences)
          grids.push_back({x, y, z, run.devices / (x * y * z)});
  return grids;
}

Machine machine_of(const PublishedRun& run) {
  Machine machine = read_machine(run.machine);
  if (!run.tuned) machine.bf16.flops_per_s /= kTuningGain;
  return machine;
}

Predicted predict_on(const PublishedRun& run, const GridShape& grid) {
  return {run, grid, simulate_whole_step(published_config(run, grid), machine_of(run))};
}

GridShape chosen_grid(PublishedRun run) {
  run.overlap = Overlap::weights;
  run.tuned = true;
  const auto ranked =
      paper_ranking(grids_for(run), published_config(run, {}).model,
                    {.tokens = kTokens, .recompute = true}, read_machine(run.machine));
  std::vector<Predicted> tried;
  for (std::size_t i = 0; i < std::min(kTried, ranked.size()); ++i)
    tried.push_back(predict_on(run, ranked[i].grid));
  return std::ranges::min(tried, {}, [](const Predicted& p) { return p.time.step_s; }).grid;
}

/// Tensor parallelism inside a node, sharding over 8 nodes, and data parallelism.
GridShape baseline_grid(const PublishedRun& run) {
  const int x = read_machine(run.machine).devices_per_node, z = 8;
  return {x, 1, z, run.devices / (x * z)};
}

std::vector<PublishedRun> gains(const char* model, int devices, std::array<double, 4> seconds) {
  const PublishedRun run = {.machine = "frontier", .devices = devices, .model = model, .what = {}};
  std::vector<PublishedRun> steps(4, run);
  const char* const names[] = {"baseline", "model-chosen grid", "+ kernel tuning", "+ overlap"};
  for (int i = 0; i < 4; ++i) {
    steps[i].what = names[i];
    steps[i].seconds = seconds[i];
    steps[i].baseline = i == 0;
    steps[i].tuned = i >= 2;
    steps[i].overlap = i == 3 ? Overlap::weights : Overlap::none;
  }
  return steps;
}

}  // namespace

std::vector<PublishedRun> weak_scaling() {
  const char* const weak = "weak scaling";
  return {{"perlmutter", 512, "5B", weak, 9.03},   {"perlmutter", 1024, "10B", weak, 7.45},
          {"perlmutter", 2048, "20B", weak, 8.00}, {"perlmutter", 4096, "40B", weak, 8.79},
          {"frontier", 512, "5B", weak, 17.74},    {"frontier", 8192, "80B", weak, 18.49},
          {"alps", 1024, "10B", weak, 4.70}};
}

std::vector<PublishedRun> overlap_steps() {
  return {{"frontier", 8192, "80B", "no overlap", 22.74, Overlap::none},
          {"frontier", 8192, "80B", "+ OAR", 22.23, Overlap::input_gradients},
          {"frontier", 8192, "80B", "+ ORS", 21.26, Overlap::weight_gradients},
          {"frontier", 8192, "80B", "+ OAG", 18.49, Overlap::weights}};
}

std::vector<PublishedRun> gains_5b() { return gains("5B", 512, {33.82, 18.68, 17.86, 17.79}); }

std::vector<PublishedRun> gains_80b() { return gains("80B", 8192, {27.96, 24.36, 23.72, 18.49}); }

Config published_config(const PublishedRun& run, const GridShape& grid) {
  const Sizes& sizes = sizes_of(run.model);
  Config config;
  config.model = {
      .layers = sizes.layers, .hidden = sizes.hidden, .heads = sizes.hidden / kHeadWidth};
  config.model.vocab = run.machine == "perlmutter" ? 65536 : 32000;
  config.training = {.steps = 1, .seq_len = kSeqLen, .global_batch = kSequences};
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid(grid);
  config.parallelism.sequence_parallel = false;
  config.parallelism.reduce_dtype = DType::bf16;
  config.parallelism.overlap_input_gradients = run.overlap >= Overlap::input_gradients;
  config.parallelism.overlap_weight_gradients = run.overlap >= Overlap::weight_gradients;
  config.parallelism.overlap_weights = run.overlap >= Overlap::weights;
  config.parallelism.overlap_data = false;
  config.activation_checkpoint.mode = RecomputeMode::full;
  return resolved(config);
}

Predicted predict(const PublishedRun& run) {
  return predict_on(run, run.baseline ? baseline_grid(run) : chosen_grid(run));
}

std::vector<Predicted> predict(const std::vector<PublishedRun>& runs) {
  std::vector<Predicted> all;
  for (const PublishedRun& run : runs) all.push_back(predict(run));
  return all;
}

std::string table_key(const PublishedRun& run) {
  return fmt::format("| {} | {} | {} | {} | ", run.machine, run.devices, run.model, run.what);
}

std::string table_row(const Predicted& p) {
  return table_key(p.run) + fmt::format("{} | {:.2f} | {:.2f} | {:+.1f} % |", to_string(p.grid),
                                        p.run.seconds, p.time.step_s, 100 * p.error());
}

}  // namespace axonn::testing_support
