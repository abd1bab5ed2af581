#include "axonn/train/checkpoints.h"

#include "axonn/options/options.h"
#include "axonn/train/run_state.h"
#include "axonn/train/stored_config.h"

namespace axonn {

void save_checkpoint(const LoadedModel& model, const OptimizerState& optimizer,
                     const std::string& folder, std::int64_t steps_done) {
  Communicator& world = model.grid().world();
  const TrainingConfig& t = model.config().training;
  CheckpointSaver saver({.folder = folder, .keep = 0, .async = false});
  saver.begin(
      world, steps_done, state_blocks(model, optimizer),
      to_texts({.steps_done = steps_done, .tokens_seen = steps_done * t.global_batch * t.seq_len},
               model.config(), stored_config_text(model.config(), Origins())));
  saver.finish(world);
}

std::int64_t load_checkpoint(const LoadedModel& model, const OptimizerState& optimizer,
                             const std::string& path) {
  const Resumed resumed = resume(model, optimizer, path);
  return read_run_state(resumed.reader, model.config()).steps_done;
}

}  // namespace axonn
