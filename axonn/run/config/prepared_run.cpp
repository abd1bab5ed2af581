#include "axonn/run/config/prepared_run.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/config/validate.h"

namespace axonn {

PreparedRun prepared(Config config) {
  validate(config);
  return PreparedRun(resolved(with_vocab(std::move(config))));
}

PreparedRun prepared_model(Config config) {
  config = with_vocab(std::move(config));
  config.model = resolved(config.model, 0, std::max<std::int64_t>(config.training.seq_len, 1));
  config.activation_checkpoint = {};
  return PreparedRun(std::move(config));
}

PreparedRun PreparedRun::with(const std::function<void(Config& config)>& change) const {
  Config config = config_;
  change(config);
  const std::string& grid = config.parallelism.named_grid;
  AXONN_CHECK(grid.empty() || grid == config_.parallelism.named_grid, "parallelism.grid became \"",
              grid, "\"; prepare the run with prepared(config)");
  const ModelConfig& m = config.model;
  AXONN_CHECK(
      m.vocab > 0 && (architecture_of(m.family) || (m.layers > 0 && m.hidden > 0 && m.heads > 0)),
      "the model has ", m.layers, " layers, width ", m.hidden, ", ", m.heads,
      " heads and a vocabulary of ", m.vocab, "; prepare the run with prepared(config)");
  return PreparedRun(std::move(config));
}

}  // namespace axonn
