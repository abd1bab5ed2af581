#include "axonn/use/infer/draft_model.h"

#include <algorithm>
#include <map>

#include "axonn/foundation/base/check.h"
#include "axonn/use/infer/generation_schedule.h"

namespace axonn {

namespace {

Generator::Options options_of(LoadedModel& model, const DraftModel::Options& options) {
  if (!model.model().caches() || !model.config().model.delta_layers.empty())
    refuse("--draft: a model ",
           model.model().caches() ? "with DeltaNet layers, whose states cannot be taken back"
                                  : "that keeps no keys and values",
           ", writes no drafts; give another one");
  return {.batch = options.slots,
          .context = std::min(options.limits.context, model.config().model.positions),
          .hold_weights = options.hold_weights,
          .tokenizer = options.tokenizer};
}

}  // namespace

DraftModel::DraftModel(LoadedModel& model, const Options& options)
    : limits_(options.limits), generator_(model, options_of(model, options)) {
  generator_.reserve(options.slots * model.grid().batch_coordinates());
}

void DraftModel::write(GenerationPass& work) {
  std::map<std::size_t, PassPart*> part_of;
  for (auto& parts : work.of_coordinate)
    for (PassPart& part : parts) {
      const GeneratedSequence& sequence = *part.sequence;
      const auto length = static_cast<std::int64_t>(sequence.in_context());
      const std::int64_t count =
          std::min(draft_room(part, limits_, std::ssize(parts)), generator_.context() - length);
      if (count < 1) continue;
      const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.begin);
      GenerationOptions wanted{.max_tokens = count, .logit_bias = sequence.options.logit_bias};
      wanted.sampling.repetition_penalty = sequence.options.sampling.repetition_penalty;
      part_of[generator_.add({first, sequence.tokens.end()}, wanted)] = &part;
    }
  while (!generator_.idle())
    generator_.step({}, [&](std::size_t number, Generation text) {
      part_of.at(number)->draft = std::move(text.tokens);
      work.drafted = std::max(work.drafted, std::ssize(part_of.at(number)->draft));
    });
}

}  // namespace axonn
