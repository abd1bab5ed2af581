// Trains a small GPT with an optimizer of its own, on one rank and on a 2x2x2 grid, and compares
// the losses. Halfway, the second run continues from the checkpoint of the first.
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "lion.h"

namespace {

constexpr std::int64_t kSteps = 20;
const std::string kFolder = "custom_optimizer_checkpoints";

axonn::Config config_of(const axonn::GridShape& grid) {
  axonn::Config config;
  config.model = {.layers = 2, .hidden = 64, .heads = 4};
  config.data.synthetic = 100'000;  // bytes of generated text
  config.training = {.steps = kSteps, .seq_len = 32, .global_batch = 16};
  config.optimizer.lr = 1e-3;
  config.lr_scheduler.kind = axonn::ScheduleKind::constant;
  config.parallelism.set_grid(grid);
  axonn::validate(config);
  return axonn::resolved(config);
}

std::unique_ptr<axonn::Optimizer> make_lion(const axonn::OptimizerConfig& config) {
  return std::make_unique<Lion>(Lion::Options{.weight_decay = config.weight_decay});
}

/// One rank's training; returns the losses of its steps.
std::vector<double> train(const axonn::Config& config, axonn::Communicator& world, bool resumes) {
  axonn::Training training(config, world, nullptr, {.make_optimizer = make_lion});
  training.model.initialise();
  std::int64_t step = 0;
  if (resumes) step = axonn::load_checkpoint(training, kFolder);
  std::vector<double> losses;
  for (; step < kSteps; ++step) {
    if (!resumes && step == kSteps / 2) axonn::save_checkpoint(training, kFolder, step);
    losses.push_back(training.run(step).loss);
  }
  return losses;
}

/// The same losses on every rank, of which the first returns its own.
std::vector<double> train_on(const axonn::GridShape& grid, bool resumes) {
  std::vector<double> losses;
  axonn::launch(config_of(grid), [&](axonn::Communicator& world) {
    const std::vector<double> mine = train(config_of(grid), world, resumes);
    if (world.rank() == 0) losses = mine;
  });
  return losses;
}

/// Prints the losses, and returns the largest relative difference of those that both runs have.
double compare(const std::vector<double>& one, const std::vector<double>& other) {
  const std::size_t first = one.size() - other.size();
  double largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::printf("%4zu   %.6f", i + 1, one[i]);
    if (i >= first) {
      std::printf("   %.6f", other[i - first]);
      largest = std::max(largest, std::abs(one[i] - other[i - first]) / one[i]);
    }
    std::printf("\n");
  }
  return largest;
}

}  // namespace

int main() {
  try {
    std::filesystem::remove_all(kFolder);
    std::printf("step   1,1,1,1    2,2,2,1, from step %lld on\n",
                static_cast<long long>(kSteps / 2 + 1));
    const auto one = train_on({}, false), eight = train_on({.x = 2, .y = 2, .z = 2}, true);
    const double difference = compare(one, eight);
    // The sign of a mean near 0 may differ between sums of another order.
    constexpr double kAllowed = 1e-3;
    std::printf("largest relative difference: %.1e, %.0e is allowed\n", difference, kAllowed);
    return difference <= kAllowed && one.back() < 0.8 * one.front() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
