#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/loss_term.h"

namespace axonn {

/// A model that a run compares its own with.
struct Companion {
  std::string path;
  const char* key;  ///< that names it, such as "[distill] teacher", for messages
};
/// Loads one, on the grid of the run and in the memory of its model's device; null if there is no
/// path. Its weights are read if the device keeps values. `tokenizer`: the model's, or null if it
/// is not known. Collective over world. Throws UsageError if there is no such model, if its
/// vocabulary or tokens are others than those of `model`, and if one of the two models does not end
/// in logits that this library computes.
std::unique_ptr<LoadedModel> load_beside(LoadedModel& model, const Companion& companion,
                                         Communicator& world, const Tokenizer* tokenizer);

/// The divergence of a model's distributions from those of a teacher, in place of the losses of
/// tokens: attaches the teacher to each pass. Validation has the losses of tokens.
class DistillationTerm final : public LossTerm {
 public:
  DistillationTerm(LoadedModel& teacher, const DistillConfig& config)
      : teacher_(teacher), config_(config) {}

  std::int64_t count() const override { return 2; }
  std::string graph_obstacle() const override;
  void begin_step(const StepInput& input) override;
  void begin_pass(Context& ctx, const Rows& rows, const View& sums) override;
  /// The mean losses of targets of student and teacher, at the temperature.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override;

 private:
  LoadedModel& teacher_;
  DistillConfig config_;
  StepState state_;  // of the teacher's passes
  int passes_left_ = 0;
};

}  // namespace axonn
