#include "tests/support/runs.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/optim/factors.h"

namespace axonn::testing_support {

Config tiny_config(const std::string& folder) {
  Config config;
  config.model = {.layers = 2, .hidden = 24, .heads = 12, .vocab = 256};
  config.data.synthetic = 20'000;
  config.data.validation = "0.1";
  config.training.steps = 10;
  config.training.seq_len = 8;
  config.training.global_batch = 12;
  config.training.threads = 1;
  config.optimizer.lr = 1e-2;
  config.lr_scheduler.warmup_steps = 2;
  config.checkpoint.every = 5;
  config.checkpoint.keep = 0;
  config.output.dir = folder;
  return config;
}

Config stored(Config config) { return with_stored_model(std::move(config), Origins()); }

Config on_grid(Config config, const GridShape& grid) {
  config.parallelism.set_grid(grid);
  config.parallelism.context = grid.context;
  config.parallelism.experts = grid.experts;
  return config;
}

Config without_overlap(Config config) {
  config.parallelism.overlap = Overlap::none();
  return config;
}

TrainEnd train_on_threads(const Config& given, const TrainOptions& options) {
  const PreparedRun run = prepared(given);
  std::vector<TrainEnd> ends(run->parallelism.grid().ranks());
  run_ranks(static_cast<int>(ends.size()), [&](Communicator& world) {
    world.set_policy(policy_of(run->parallelism));
    ends[world.rank()] = train(run, world, options);
  });
  EXPECT_EQ(std::ranges::count(ends, ends.front()), std::ssize(ends))
      << "ranks returned different values";
  return ends.front();
}

std::vector<double> first_losses(const Config& given) {
  const PreparedRun run = prepared(given);
  std::vector<double> losses;
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    const GridTrace trace = trace_run(run, world, make_cpu_backend(1), {.steps = 3});
    if (world.rank() == 0) losses = trace.losses;
  });
  return losses;
}

std::string failure_of(const Config& config) {
  try {
    train_on_threads(config);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::vector<nlohmann::json> metrics_of(const Config& config) {
  std::vector<nlohmann::json> lines;
  const std::string path = config.output.dir + "/metrics.jsonl";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  AXONN_CHECK(!lines.empty(), path, " is missing or empty");
  return lines;
}

std::vector<double> column(const std::vector<nlohmann::json>& lines, const std::string& key) {
  std::vector<double> values;
  for (const auto& line : lines) values.push_back(line.at(key));
  return values;
}

std::map<std::string, std::vector<float>> weights_of(const std::string& checkpoint,
                                                     const std::string& kind) {
  const CheckpointReader reader(checkpoint);
  std::vector<SliceRequest> wanted;
  std::map<std::string, std::vector<float>> weights;
  for (auto [name, rows, cols] : reader.index().parameters) {
    const bool of_rows = kind == kFactorKinds[0], of_cols = kind == kFactorKinds[1];
    if (of_cols && cols == 1) continue;  // a vector has none
    if (of_rows) cols = 1;
    if (of_cols) rows = 1;
    wanted.push_back({.parameter = name,
                      .kind = kind,
                      .slices = {{.rows = rows, .cols = cols, .end = rows * cols}}});
    weights[name].resize(static_cast<std::size_t>(rows * cols));
  }
  CheckpointSource(reader, reader.index().parameters, {kind})
      .read(wanted, [&](std::size_t i, std::int64_t offset, StoredType type, auto values) {
        to_floats(type, values,
                  std::span(weights[wanted[i].parameter])
                      .subspan(offset, values.size() / bytes_of(type)));
      });
  return weights;
}

void write_token_file(const std::string& path, const std::vector<std::int32_t>& tokens) {
  TokenWriter writer(path, 1000);
  writer.append(tokens);
  writer.finish();
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

}  // namespace axonn::testing_support
