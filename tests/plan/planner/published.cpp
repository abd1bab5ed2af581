#include "tests/plan/planner/published.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <list>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/run/config/resolve.h"

#include "tests/plan/planner/paper_ranking.h"

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
constexpr std::array<Sizes, 8> kSizes = {{{"5B", 24, 4096, 4},
                                          {"10B", 32, 5120, 8},
                                          {"20B", 32, 7168, 16},
                                          {"40B", 38, 9216, 32},
                                          {"60B", 56, 9216, 64},
                                          {"80B", 42, 12288, 64},
                                          {"160B", 84, 12288, 128},
                                          {"320B", 96, 16384, 256}}};

const Sizes& sizes_of(const std::string& name) {
  const auto found =
      std::ranges::find(kSizes, name, [](const Sizes& s) { return std::string(s.name); });
  AXONN_CHECK(found != kSizes.end(), "no published model ", name);
  return *found;
}

/// Powers of two, and, if the number of devices has the factor three, three times these.
std::vector<int> extents(int devices) {
  std::vector<int> all;
  for (int two = 1; two <= devices; two *= 2) {
    all.push_back(two);
    if (devices % 3 == 0 && 3 * two <= devices) all.push_back(3 * two);
  }
  return all;
}

/// The grids that can cut and hold the model.
std::vector<GridShape> grids_for(const PublishedRun& run) {
  const Sizes& sizes = sizes_of(run.model);
  const std::int64_t heads = sizes.hidden / kHeadWidth;
  const std::vector<int> all = extents(run.devices);
  std::vector<GridShape> grids;
  for (const int x : all)
    for (const int y : all)
      for (const int z : all) {
        const std::int64_t ranks = std::int64_t{x} * y * z;
        if (heads % x != 0 || heads % y != 0 || ranks < sizes.least || run.devices % ranks != 0)
          continue;
        const int data = static_cast<int>(run.devices / ranks);
        if (kSequences % (std::int64_t{z} * data) == 0) grids.push_back({x, y, z, data});
      }
  return grids;
}

/// Bytes of a rank in the authors' program, roughly: f32 and bf16 parameters, gradients and Adam's
/// moments; the logits and their gradient; the input of every block; the values of one block.
double bytes_of_rank(const PublishedRun& run, const GridShape& grid, std::int64_t vocab,
                     std::int64_t micro_batch) {
  const Sizes& sizes = sizes_of(run.model);
  const auto h = static_cast<double>(sizes.hidden), layers = static_cast<double>(sizes.layers);
  const double rows = static_cast<double>(micro_batch * kSeqLen);
  return 16 * 12 * h * h * layers / (grid.x * grid.y * grid.z) +
         rows * (10 * static_cast<double>(vocab) + 2 * h * (layers + 40));
}

Machine paper_machine(const std::string& name) { return read_machine(name + "-paper"); }

/// A grid that the authors may have run, and its recording.
struct Candidate {
  GridShape grid;
  Recording recording;
};

Candidate candidate(const PublishedRun& run, const GridShape& grid) {
  DryStep dry =
      dry_step(prepared(published_config(run, grid)), 0,
               {.recording = true, .most_micro_batches = std::numeric_limits<int>::max()});
  return {grid, std::move(dry.recording)};
}

/// Tensor parallelism inside a node, sharding over 8 nodes, and data parallelism.
GridShape baseline_grid(const PublishedRun& run) {
  const int x = paper_machine(run.machine).devices_per_node, z = 8;
  return {x, 1, z, run.devices / (x * z)};
}

/// The run's candidates. They do not depend on the constants that are fitted; kept, because fits
/// simulate them many times.
const std::vector<Candidate>& candidates(const PublishedRun& run) {
  static std::list<std::pair<PublishedRun, std::vector<Candidate>>> known;
  const auto found = std::ranges::find(known, run, [](const auto& pair) { return pair.first; });
  if (found != known.end()) return found->second;
  std::vector<Candidate> all;
  if (run.baseline) {
    all.push_back(candidate(run, baseline_grid(run)));
  } else {
    const auto ranked =
        paper_ranking(grids_for(run), published_config(run, {}).model,
                      {.tokens = kTokens, .recompute = true}, paper_machine(run.machine));
    for (std::size_t i = 0; i < std::min(kTried, ranked.size()); ++i)
      all.push_back(candidate(run, ranked[i].grid));
  }
  return known.emplace_back(run, std::move(all)).second;
}

Predicted predict_on(const PublishedRun& run, const Candidate& one, Machine machine) {
  if (!run.tuned) machine.bf16.flops_per_s /= kTuningGain;
  return {run, one.grid, simulate(one.recording, MachineCosts(machine, one.grid))};
}

/// A constant that is fitted: where it is, and its range.
struct Constant {
  double& (*figure)(Machine& machine);
  double least, most;
};
constexpr Constant kJitter{[](Machine& m) -> double& { return m.jitter_s; }, 1e-5, 1e-2};
constexpr Constant kInside{[](Machine& m) -> double& { return m.inside_share; }, 0.05, 1};
constexpr Constant kProducts{[](Machine& m) -> double& { return m.bf16.flops_per_s; }, 2e14, 9e14};

/// A machine, the constants that are fitted, and the runs to fit them to.
struct Fit {
  Machine machine;
  std::vector<Constant> constants;
  std::vector<PublishedRun> runs;
};

PublishedRun run_of(const std::string& machine, int devices, const std::string& what) {
  const std::vector<PublishedRun> all = published_runs();
  const auto found = std::ranges::find_if(all, [&](const PublishedRun& run) {
    return run.machine == machine && run.devices == devices && run.what == what;
  });
  AXONN_CHECK(found != all.end(), "no published run of ", devices, " devices of ", machine);
  return *found;
}

/// The fit that does not use `left_out`. A run that is left out is replaced by another one. Alps
/// has none, so there one constant is fitted instead of two.
Fit fit_without(const PublishedRun& left_out) {
  const std::string& name = left_out.machine;
  const auto first = [&](std::size_t count, const std::vector<std::pair<int, const char*>>& of) {
    std::vector<PublishedRun> found;
    for (const auto& [devices, what] : of)
      if (const PublishedRun run = run_of(name, devices, what);
          !(run == left_out) && found.size() < count)
        found.push_back(run);
    return found;
  };
  const char* const weak = "weak scaling";
  Fit fit{paper_machine(name), {kJitter}, {}};
  if (name == "frontier") {
    fit.constants.push_back(kInside);
    fit.runs = first(1, {{8192, weak}, {512, weak}});
    fit.runs.push_back(first(1, {{512, "baseline"}, {8192, "baseline"}}).front());
  } else if (name == "alps") {
    fit.runs = first(2, {{1024, weak}, {6144, weak}});
    if (fit.runs.size() == 2)
      fit.constants.push_back(kProducts);
    else
      fit.machine.bf16 = read_machine(name).bf16;
  } else {
    fit.runs = first(2, {{512, weak}, {4096, weak}, {2048, weak}});
  }
  return fit;
}

/// Sets the constant where f is least, by a golden section of its logarithm.
template <typename F>
void minimize(double& value, const Constant& constant, const F& f) {
  constexpr double kGolden = 0.6180339887, kClose = 0.01;
  double low = std::log(constant.least), high = std::log(constant.most);
  const auto at = [&](double logarithm) {
    value = std::exp(logarithm);
    return f();
  };
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double at_a = at(a), at_b = at(b);
  while (high - low > kClose) {
    if (at_a < at_b) {
      high = std::exchange(b, a);
      at_b = at_a;
      at_a = at(a = high - kGolden * (high - low));
    } else {
      low = std::exchange(a, b);
      at_a = at_b;
      at_b = at(b = low + kGolden * (high - low));
    }
  }
  value = std::exp((low + high) / 2);
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
    steps[i].overlap = i == 3 ? PublishedOverlap::weights : PublishedOverlap::none;
  }
  return steps;
}

}  // namespace

std::vector<PublishedRun> weak_scaling() {
  const char* const weak = "weak scaling";
  return {{"perlmutter", 512, "5B", weak, 9.03},
          {"perlmutter", 1024, "10B", weak, 7.45},
          {"perlmutter", 2048, "20B", weak, 8.00},
          {"perlmutter", 4096, "40B", weak, 8.79},
          {"frontier", 512, "5B", weak, 17.74},
          {"frontier", 8192, "80B", weak, 18.49},
          {"frontier", 32768, "320B", weak, 30.72},  // 1,381.0 Pflop/s
          {"alps", 1024, "10B", weak, 4.70},
          {"alps", 6144, "60B", weak, 5.57}};  // 1,423.1 Pflop/s
}

std::vector<PublishedRun> overlap_steps() {
  return {{"frontier", 8192, "80B", "no overlap", 22.74, PublishedOverlap::none},
          {"frontier", 8192, "80B", "+ OAR", 22.23, PublishedOverlap::input_gradients},
          {"frontier", 8192, "80B", "+ ORS", 21.26, PublishedOverlap::weight_gradients}};
}

std::vector<PublishedRun> gains_5b() { return gains("5B", 512, {33.82, 18.68, 17.86, 17.79}); }

std::vector<PublishedRun> gains_80b() {
  auto runs = gains("80B", 8192, {27.96, 24.36, 23.72, 18.49});
  runs.pop_back();
  return runs;
}

std::vector<PublishedRun> published_runs() {
  std::vector<PublishedRun> all;
  for (const auto& runs : {weak_scaling(), overlap_steps(), gains_5b(), gains_80b()})
    all.insert(all.end(), runs.begin(), runs.end());
  return all;
}

Config published_config(const PublishedRun& run, const GridShape& grid) {
  const Sizes& sizes = sizes_of(run.model);
  Config config;
  config.model = {
      .layers = sizes.layers, .hidden = sizes.hidden, .heads = sizes.hidden / kHeadWidth};
  config.model.vocab = run.machine == "perlmutter" ? 65536 : 32000;
  config.training = {.steps = 1, .seq_len = kSeqLen, .global_batch = kSequences};
  const Machine machine = paper_machine(run.machine);
  std::int64_t& micro_batch = config.training.micro_batch;
  micro_batch = kSequences / (std::int64_t{grid.z} * grid.data);
  while (micro_batch % 2 == 0 &&
         bytes_of_rank(run, grid, config.model.vocab, micro_batch) > machine.usable_bytes())
    micro_batch /= 2;
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid(grid);
  config.parallelism.sequence_parallel = false;
  config.parallelism.reduce_dtype = DType::bf16;
  config.parallelism.overlap.input_gradients = run.overlap >= PublishedOverlap::input_gradients;
  config.parallelism.overlap.weight_gradients = run.overlap >= PublishedOverlap::weight_gradients;
  config.parallelism.overlap.weights = run.overlap >= PublishedOverlap::weights;
  config.parallelism.overlap.data = false;
  config.activation_checkpoint.mode = RecomputeMode::full;
  config.data.synthetic = 1;  // without effect on a step's time, but a run needs data and a rate
  config.optimizer.lr = 1;
  return resolved(config);
}

Predicted predict(const PublishedRun& run, const Machine& machine) {
  PublishedRun chosen_by = run;
  if (!run.baseline) {
    chosen_by.overlap = PublishedOverlap::weights;
    chosen_by.tuned = true;
  }
  const auto& tried = candidates(chosen_by);
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const double seconds = predict_on(chosen_by, tried[i], machine).time.step_s;
    if (seconds < least) best = i;
    least = std::min(least, seconds);
  }
  return predict_on(run, run == chosen_by ? tried[best] : candidates(run)[best], machine);
}

Predicted predict(const PublishedRun& run) { return predict(run, paper_machine(run.machine)); }

std::vector<Predicted> predict(const std::vector<PublishedRun>& runs) {
  std::vector<Predicted> all;
  for (const PublishedRun& run : runs) all.push_back(predict(run));
  return all;
}

Machine fitted_without(const PublishedRun& left_out) {
  Fit fit = fit_without(left_out);
  const auto squares = [&] {
    double sum = 0;
    for (const PublishedRun& run : fit.runs) sum += std::pow(predict(run, fit.machine).error(), 2);
    return sum;
  };
  constexpr int kRounds = 4;
  for (int round = 0; round < (fit.constants.size() > 1 ? kRounds : 1); ++round)
    for (const Constant& constant : fit.constants)
      minimize(constant.figure(fit.machine), constant, squares);
  return fit.machine;
}

std::vector<Predicted> leave_one_out(const std::vector<PublishedRun>& runs) {
  std::vector<std::pair<std::vector<PublishedRun>, Machine>> fits;  // most runs have the same
  std::vector<Predicted> all;
  for (const PublishedRun& run : runs) {
    const std::vector<PublishedRun> to = fit_without(run).runs;
    auto known = std::ranges::find(fits, to, [](const auto& fit) { return fit.first; });
    if (known == fits.end()) known = fits.insert(fits.end(), {to, fitted_without(run)});
    all.push_back(predict(run, known->second));
  }
  return all;
}

Errors errors_of(const std::vector<Predicted>& all) {
  Errors errors;
  for (const Predicted& one : all) {
    errors.mean += std::abs(one.error()) / static_cast<double>(all.size());
    errors.worst = std::max(errors.worst, std::abs(one.error()));
  }
  return errors;
}

std::string table_key(const PublishedRun& run) {
  return fmt::format("| {} | {} | {} | {} | ", run.machine, run.devices, run.model, run.what);
}

std::string table_row(const Predicted& p) {
  return table_key(p.run) + fmt::format("{} | {:.2f} | {:.2f} | {:+.1f} % |", to_string(p.grid),
                                        p.run.seconds, p.time.step_s, 100 * p.error());
}

}  // namespace axonn::testing_support
