#pragma once

#include "axonn/use/infer/drafts.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

struct GenerationPass;

/// Speculative decoding by a smaller model: it continues texts by its likeliest tokens, which the
/// passes of another model then verify as DraftLimits says. It keeps keys and values of its own in
/// as many slots, of which a text finds its own again.
class DraftModel {
 public:
  struct Options {
    std::int64_t slots = 1;  ///< per (z, data) coordinate
    DraftLimits limits = {};
    bool hold_weights = true;
    const Tokenizer* tokenizer = nullptr;
  };
  /// The model has the tokens and the grid of the other one, and must outlive it. Throws UsageError
  /// if its cache cannot give tokens back that were not drawn.
  DraftModel(LoadedModel& model, const Options& options);

  /// Sets the drafts of a pass that reads the cache. Collective.
  void write(GenerationPass& work);

 private:
  DraftLimits limits_;
  Generator generator_;
};

}  // namespace axonn
