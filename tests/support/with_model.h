#pragma once

#include <functional>

#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn::testing_support {

/// Runs body on each rank of the config's grid with its frozen model, whose parameters have initial
/// values or those at model.path.
inline void with_model(const Config& config, const std::function<void(LoadedModel&)>& body) {
  run_ranks(config.parallelism.grid().ranks(), [&](Communicator& world) {
    LoadedModel model(prepared_model(config), world, make_cpu_backend(1), {.trainable = false});
    model.initialise();
    body(model);
  });
}

}  // namespace axonn::testing_support
