#include "axonn/run/train/tune.h"

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

/// Rank 0's choices that need no timing.
struct KnownChoices {
  MatmulChoices choices;
  std::string ignored;  ///< the stored choices that this backend does not have; "": none
};

/// The choices of an earlier run come first, even from another machine, so that a resumed run
/// computes as before; then those of the cache for this machine.
KnownChoices known_choices(const RecordingBackend& step, Backend& backend, const MatmulCache& cache,
                           const TuneOptions& options) {
  KnownChoices known{.choices = {.device = backend.matmul_device(), .products = {}}, .ignored = {}};
  int ignored = 0;
  for (const auto& [shape, calls] : step.counts()) {
    const TunedMatmul* found = options.earlier.find(shape);
    if (!found && !options.again) found = cache.find(known.choices.device, shape);
    if (!found) continue;
    if (backend.set_matmul_way(shape, found->way)) {
      known.choices.products.push_back(*found);
      known.choices.products.back().calls = calls;
    } else {
      known.ignored = concat("products: ", ++ignored, " stored choices are timed again, because ",
                             known.choices.device, " does not compute ", to_string(shape), " as '",
                             found->way, '\'');
    }
  }
  return known;
}

MatmulChoices broadcast(Communicator& world, const MatmulChoices& choices) {
  return parse_matmul_choices(broadcast_text(world, to_json(choices), 0), "rank 0");
}

}  // namespace

MatmulChoices tune(Training& training, const TuneOptions& options) {
  Communicator& world = training.model.grid().world();
  Backend& backend = training.model.backend();
  const bool first = world.rank() == 0;
  const auto report = [&](const std::string& line) {
    if (first && options.report && !line.empty()) options.report(line);
  };
  RecordingBackend step(backend);
  training.step.rehearse(training.model.context_on(step),
                         training.input(training.batches->first_step()));

  MatmulCache cache(first ? options.cache : "");
  report(cache.warning());
  const KnownChoices stored = first ? known_choices(step, backend, cache, options) : KnownChoices{};
  report(stored.ignored);
  MatmulChoices choices = broadcast(world, stored.choices);
  const std::size_t known = choices.products.size();
  // Rank 0's list counts: a shape that rank 0 does not have is computed in the default way on all
  // ranks.
  MatmulChoices wanted{.device = choices.device, .products = {}}, timed = wanted;
  for (const auto& [shape, calls] : step.counts())
    if (!choices.find(shape))
      wanted.products.push_back({.shape = shape, .way = {}, .default_way = {}, .calls = calls});
  wanted = broadcast(world, wanted);
  ProgressLine line(first ? options.progress : ProgressTarget{}, "timing", "matrix products");
  for (std::size_t i = 0; i < wanted.products.size(); ++i) {
    const MatmulShape& shape = wanted.products[i].shape;
    line(static_cast<std::int64_t>(i), std::ssize(wanted.products));
    world.barrier("tune");
    TunedMatmul tuned = tune_matmul(backend, shape);
    tuned.calls = wanted.products[i].calls;
    timed.products.push_back(tuned);
  }
  timed = broadcast(world, timed);
  choices.products.insert(choices.products.end(), timed.products.begin(), timed.products.end());
  for (const TunedMatmul& product : choices.products)
    AXONN_CHECK(backend.set_matmul_way(product.shape, product.way), "rank ", world.rank(),
                " cannot compute ", to_string(product.shape), " as '", product.way,
                "', which rank 0 chose; all ranks must run the same build");
  if (first && !timed.products.empty()) {
    cache.keep(timed);
    report(cache.warning());
  }
  report(concat("products: ", timed.products.size(), " timed, ", known, " known from before"));
  return choices;
}

}  // namespace axonn
