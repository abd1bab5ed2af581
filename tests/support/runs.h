#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/run/config/config.h"
#include "axonn/run/train/trainer.h"

namespace axonn::testing_support {

/// Returns the config of a run of a tenth of a second that writes to `folder`: 10 steps of 12
/// sequences, with a model that can be cut over 1, 2, 3, 4 and 6 ranks. It saves after step 5 and
/// at the end.
Config tiny_config(const std::string& folder);

/// What a run from the model at model.path needs besides.
Config stored(Config config);
/// Returns config with this grid.
Config on_grid(Config config, const GridShape& grid);

/// Returns config without any overlap.
Config without_overlap(Config config);

/// Trains with one thread per rank. Expects all ranks to return the same, and returns it.
TrainEnd train_on_threads(const Config& config, const TrainOptions& options = {});

/// Returns the losses of the first three steps, with one thread per rank.
std::vector<double> first_losses(const Config& config);

/// Returns the message of the Error that ends the run; "" if none does.
std::string failure_of(const Config& config);

/// Returns the lines of a run's metrics.jsonl. Throws Error if there are none.
std::vector<nlohmann::json> metrics_of(const Config& config);
/// Returns one value of each line.
std::vector<double> column(const std::vector<nlohmann::json>& lines, const std::string& key);

/// Returns every parameter of a checkpoint as a whole; kind is "master", "exp_avg", "exp_avg_sq" or
/// one of kFactorKinds, of which it returns the factors of rows or of columns.
std::map<std::string, std::vector<float>> weights_of(const std::string& checkpoint,
                                                     const std::string& kind = "master");

/// Writes a token file in llm.c's format.
void write_token_file(const std::string& path, const std::vector<std::int32_t>& tokens);

/// Returns the largest |a - b| / |b| of two columns of the same length.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace axonn::testing_support
