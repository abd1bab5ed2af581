#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/comm/grid.h"
#include "axonn/train/config.h"
#include "axonn/train/trainer.h"

namespace axonn::testing_support {

/// A run of a tenth of a second that writes to `folder`: 10 steps of 12 sequences of a model that
/// can be cut over 1, 2, 3, 4 and 6 ranks; validated. It saves after step 5 and at the end.
Config tiny_config(const std::string& folder);

/// The same on a grid.
Config on_grid(Config config, const GridShape& grid);

/// Trains on threads, one a rank; what all ranks returned.
TrainEnd train_on_threads(const Config& config, const TrainOptions& options = {});

/// The losses of its first three steps, on threads, one a rank.
std::vector<double> first_losses(const Config& config);

/// The message of the Error with which the run ends; "" if it does not.
std::string failure_of(const Config& config);

/// metrics.jsonl of a run, a line each.
std::vector<nlohmann::json> metrics_of(const Config& config);
/// One value of each line.
std::vector<double> column(const std::vector<nlohmann::json>& lines, const std::string& key);

/// Every parameter of a checkpoint, whole: one kind of "master", "exp_avg" and "exp_avg_sq".
std::map<std::string, std::vector<float>> weights_of(const std::string& checkpoint,
                                                     const std::string& kind = "master");

/// A token file in llm.c's format.
void write_token_file(const std::string& path, const std::vector<std::int32_t>& tokens);

/// The largest |a - b| / |b| of two columns of the same length.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace axonn::testing_support
