#pragma once

#include <functional>
#include <string>

#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"

namespace axonn {

/// config, whose grid is automatic, on the grid of world's ranks that a plan ranks first, with the
/// plan's micro-batch, and its recomputation where config has none. Planned for
/// parallelism.machine, or for what a quick probe() by these ranks says.
///
/// A run that resumes keeps what the checkpoint's run had chosen, if that was for as many ranks.
///
/// config is validated and resolved. Rank 0 chooses for all; the lines that it is told say what and
/// why. Collective.
/// Errors: UsageError where no grid of so many ranks cuts the model, or fits into memory.
Config with_chosen_grid(Config config, Communicator& world,
                        const std::function<void(const std::string& line)>& report);

}  // namespace axonn
