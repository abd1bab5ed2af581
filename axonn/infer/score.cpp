#include "axonn/infer/score.h"

#include <algorithm>
#include <cmath>

#include "axonn/base/check.h"
#include "axonn/parallel/scheduling.h"

namespace axonn {

namespace {

/// Sequences [first, first + batch) as a rank's tokens. Sequences beyond the last have no targets.
struct Batch {
  Rows rows;
  std::vector<std::int32_t> ids, targets;
};

Batch read_batch(const ScoredSequences& sequences, std::int64_t first, std::int64_t batch) {
  const std::int64_t end = std::min(first + batch, sequences.count());
  std::int64_t length = 1;
  for (std::int64_t n = first; n < end; ++n) length = std::max(length, sequences.length(n));
  Batch result{.rows = {batch, length}};
  result.ids.assign(batch * length, 0);
  result.targets.assign(batch * length, -1);
  for (std::int64_t n = first; n < end; ++n) {
    const std::int64_t at = (n - first) * length;
    sequences.read(n, std::span(result.ids).subspan(at, length),
                   std::span(result.targets).subspan(at, length));
  }
  return result;
}

/// Returns the loss and the greedy flag of each row, (R, 2), in host memory.
std::vector<float> losses_of(LoadedModel& model, const Context& ctx, const Batch& batch) {
  const Tokens tokens = make_tokens(ctx, batch.ids, batch.targets, batch.rows);
  const Tensor losses = model.model().target_losses(ctx, tokens);
  std::vector<float> host(losses.count());
  ctx.device().copy_to_host(host.data(), losses.view().data, losses.bytes());
  return host;
}

/// Index of each sum of a sequence.
enum Sum : std::int64_t { nats, targets, greedy, kSums };

void add_batch(const Batch& batch, std::span<const float> losses, std::span<double> sums) {
  for (std::int64_t row = 0; row < batch.rows.count(); ++row) {
    if (batch.targets[row] < 0) continue;
    double* sum = &sums[row / batch.rows.positions * kSums];
    sum[nats] += losses[2 * row];
    sum[targets] += 1;
    sum[greedy] += losses[2 * row + 1];
  }
}

}  // namespace

std::vector<SequenceScore> score(LoadedModel& model, const ScoredSequences& sequences,
                                 const ScoreOptions& options) {
  AXONN_CHECK(options.batch > 0, "score: ", options.batch,
              " sequences at a time; options.batch must be at least 1");
  const Grid& grid = model.grid();
  const std::int64_t round = options.batch * grid.batch_places();
  const bool counts = grid.coord(Axis::x) == 0 && grid.coord(Axis::y) == 0;
  StepState state;
  Context ctx = model.context();
  ctx.own_scheduling().step = &state;

  std::vector<double> sums(sequences.count() * kSums);
  for (std::int64_t first = 0; first < sequences.count(); first += round) {
    // Every rank computes in every round, because the weights are gathered over z.
    const std::int64_t mine = first + grid.batch_place() * options.batch;
    const Batch batch = read_batch(sequences, mine, options.batch);
    state.prefetcher.begin_pass();
    const std::vector<float> losses = losses_of(model, ctx, batch);
    if (counts && mine < sequences.count())
      add_batch(batch, losses, std::span(sums).subspan(mine * kSums));
    if (options.report && grid.world().rank() == 0)
      options.report(std::min(first + round, sequences.count()));
  }
  // Only one rank has a sequence's sums and the others have zeros, so the order of the sum changes
  // no bit.
  grid.world().all_reduce(buffer(std::span(sums)), "scores").wait();

  std::vector<SequenceScore> scores(sequences.count());
  for (std::size_t n = 0; n < scores.size(); ++n) {
    const double* sum = &sums[n * kSums];
    AXONN_CHECK(std::isfinite(sum[nats]), "score: the losses of sequence ", n, " add up to ",
                sum[nats], "; the model's parameters are damaged");
    scores[n] = {sum[nats], std::llround(sum[targets]), std::llround(sum[greedy])};
  }
  return scores;
}

}  // namespace axonn
