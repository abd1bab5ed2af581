#include "loop.h"

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>

#include <axonn/axonn.h>
#include <axonn/use/infer/generator.h>

namespace {

constexpr std::int64_t kSteps = 20;
const std::string kFolder = "custom_optimizer_checkpoints";

axonn::PreparedRun run_on(const axonn::GridShape& grid) {
  axonn::Config config;
  config.model = {.layers = 2, .hidden = 64, .heads = 4};
  config.data.synthetic = 100'000;  // bytes of generated text
  config.training = {.steps = kSteps, .seq_len = 32, .global_batch = 16};
  config.optimizer.lr = 1e-3;
  config.lr_scheduler.kind = axonn::ScheduleKind::constant;
  config.parallelism.set_grid(grid);
  config.optimizer.kind = axonn::optimizer_kind("signum");
  return axonn::prepared(config);
}

/// One rank's training; returns the losses of its steps.
std::vector<double> train(const axonn::PreparedRun& run, axonn::Communicator& world, bool resumes) {
  axonn::Training training(run, world);
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
  const axonn::PreparedRun run = run_on(grid);
  axonn::start_run(run, [&](const axonn::PreparedRun& agreed, axonn::Communicator& world) {
    const std::vector<double> mine = train(agreed, world, resumes);
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

/// Prints text that the model of the checkpoint writes.
void generate() {
  const auto run = axonn::prepared_model(axonn::config_of_model(kFolder));
  axonn::start_run(run, [&](const axonn::PreparedRun& agreed, axonn::Communicator& world) {
    axonn::LoadedModel model(agreed, world);
    model.initialise();
    const auto tokenizer = axonn::make_tokenizer(run->data.tokenizer);
    axonn::Generator generator(model, {.tokenizer = tokenizer.get()});
    const auto texts = generator.generate({tokenizer->encode_prompt("The ")}, {.max_tokens = 20});
    if (world.rank() == 0) std::printf("the checkpoint writes \"The %s\"\n", texts[0].text.c_str());
  });
}

}  // namespace

int run_loop() {
  try {
    std::filesystem::remove_all(kFolder);
    std::printf("step   1,1,1,1    2,2,2,1, from step %lld on\n",
                static_cast<long long>(kSteps / 2 + 1));
    const auto one = train_on({}, false), eight = train_on({.x = 2, .y = 2, .z = 2}, true);
    const double difference = compare(one, eight);
    // The sign of a mean near 0 may differ between sums of another order.
    constexpr double kAllowed = 1e-3;
    std::printf("largest relative difference: %.1e, %.0e is allowed\n", difference, kAllowed);
    generate();
    return difference <= kAllowed && one.back() < 0.8 * one.front() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
