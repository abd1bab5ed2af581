#include "axonn/run/train/preference_term.h"

#include <algorithm>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/preferences/pair_sequences.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/network/nn/loss.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/step.h"

namespace axonn {

namespace {

template <typename T>
std::vector<T> values_in_host(const Context& ctx, const Tensor& tensor) {
  std::vector<T> values(tensor.count());
  if (!values.empty()) ctx.device().copy_to_host(values.data(), tensor.view().data, tensor.bytes());
  return values;
}

std::uint64_t key_of_rows(std::span<const std::int32_t> ids,
                          std::span<const std::int32_t> targets) {
  const std::array<std::uint64_t, 2> both{xxh3(std::as_bytes(ids)), xxh3(std::as_bytes(targets))};
  return xxh3(std::as_bytes(std::span(both)));
}

/// The reference, on the grid of the run.
PreparedRun reference_run(const Config& run) {
  const std::string& named = run.preference.reference;
  Config config = config_of_model(named.empty() ? run.model.path : named);
  config.parallelism = run.parallelism;
  config.training = run.training;
  return prepared_model(std::move(config));
}

}  // namespace

std::vector<ScoredPair> scored_pairs(const Context& ctx, const Tokens& tokens,
                                     const Tensor& losses) {
  const auto ids = values_in_host<std::int32_t>(ctx, tokens.ids),
             targets = values_in_host<std::int32_t>(ctx, tokens.targets),
             starts = values_in_host<std::int32_t>(ctx, tokens.rows.start);
  const auto of_rows = values_in_host<float>(ctx, losses);
  const std::int64_t length = tokens.rows.positions;
  AXONN_CHECK(std::ssize(starts) == tokens.rows.count() && !tokens.rows.share,
              "scored_pairs: wants whole sequences of two documents");
  std::vector<ScoredPair> pairs(tokens.rows.sequences);
  for (std::int64_t s = 0; s < tokens.rows.sequences; ++s) {
    ScoredPair& pair = pairs[s];
    const std::int64_t first = s * length;
    pair.key = key_of_rows(std::span(ids).subspan(first, length),
                           std::span(targets).subspan(first, length));
    pair.answer_of_row.assign(length, -1);
    for (std::int64_t r = 0; r < length; ++r) {
      if (targets[first + r] < 0) continue;
      const int answer = starts[first + r] > 0;  // the chosen answer's document is the first
      pair.answer_of_row[r] = answer;
      pair.answers[answer].policy -= static_cast<double>(of_rows[2 * (first + r)]);
      ++pair.answers[answer].tokens;
    }
  }
  return pairs;
}

const std::array<double, 2>& ReferenceScores::of(std::uint64_t key) const {
  const auto found = sums_.find(key);
  AXONN_CHECK(found != sums_.end(),
              "a pair of answers is not among those that the reference scored");
  return found->second;
}

std::shared_ptr<const ReferenceScores> reference_scores(const PreparedRun& run, Communicator& world,
                                                        const Corpus& corpus) {
  if (!has_reference(run->preference.loss)) return nullptr;
  LoadedModel model(reference_run(run), world);
  model.initialise();
  const TrainingConfig& t = run->training;
  const auto sequences = std::make_shared<const PairSequences>(
      corpus.train_documents, t.seq_len, run->model.vocab, corpus.excess_length);
  const int places = model.grid().batch_places();
  Batches batches(sequences, {},
                  {.seq_len = t.seq_len,
                   .global_batch = t.micro_batch * places,
                   .micro_batch = t.micro_batch,
                   .place = model.grid().batch_place(),
                   .places = places,
                   .end = sequences->count()});
  const Context ctx = model.context();
  std::vector<double> sums(2 * sequences->count());
  std::vector<std::uint64_t> keys(sequences->count());
  StepState state;
  Context pass = ctx;
  pass.own_scheduling().step = &state;
  for (std::int64_t step = 0; step < batches.steps(); ++step)
    for (const MicroBatch& micro : batches.at(step)->micro_batches) {
      state.prefetcher.begin_pass();
      const Tokens tokens = make_tokens(ctx, micro);
      const auto pairs = scored_pairs(ctx, tokens, model.model().target_losses(pass, tokens));
      for (std::int64_t i = 0; i < std::ssize(pairs); ++i) {
        const std::int64_t n = micro.first + i;
        if (n >= sequences->count() || !model.grid().leads_place()) continue;
        for (std::size_t side = 0; side < 2; ++side)
          sums[2 * n + side] = pairs[i].answers[side].policy;
      }
    }
  model.grid().world().all_reduce(buffer(std::span(sums)), "reference").wait();
  const auto scores = std::make_shared<ReferenceScores>();
  Sequence rows;
  for (std::int64_t n = 0; n < sequences->count(); ++n) {
    sequences->read(n, rows);
    scores->set(key_of_rows(rows.ids, rows.targets), {sums[2 * n], sums[2 * n + 1]});
  }
  return scores;
}

std::string PreferenceTerm::graph_obstacle() const {
  return "the weights of answers are only known in the step, and a graph cannot wait for them";
}

void PreferenceTerm::weigh(const ScoredPair& pair, std::int64_t first, Weights& weights) {
  if (!pair.whole()) return;
  auto answers = pair.answers;
  if (reference_) {
    const std::array<double, 2>& sums = reference_->of(pair.key);
    for (std::size_t side = 0; side < 2; ++side) answers[side].reference = sums[side];
  }
  const PairLoss loss = preference_loss(config_, answers[0], answers[1]);
  // The gradient of the log-probability of a target is minus that of its loss.
  const std::array<double, 2> of_answer{-loss.d_chosen, -loss.d_rejected};
  for (std::int64_t r = 0; r < std::ssize(pair.answer_of_row); ++r) {
    const int answer = pair.answer_of_row[r];
    if (answer >= 0) weights.values[first + r] = of_answer[answer];
    weights.chosen[first + r] = answer == 0;
  }
  const auto logp = [&](const AnswerScore& answer) {
    return uses_means(config_.loss) ? answer.policy / static_cast<double>(answer.tokens)
                                    : answer.policy;
  };
  const double chosen = config_.beta * (logp(answers[0]) - answers[0].reference),
               rejected = config_.beta * (logp(answers[1]) - answers[1].reference);
  const std::array<double, kSums> mine{loss.value,         chosen,
                                       rejected,           chosen > rejected ? 1.0 : 0.0,
                                       logp(answers[0]),   logp(answers[1]),
                                       -answers[0].policy, static_cast<double>(answers[0].tokens)};
  for (std::size_t i = 0; i < mine.size(); ++i) sums_[i] += mine[i];
}

void PreferenceTerm::score(const Context& ctx, Model& model, const Tokens& tokens, int micro) {
  if (micro == 0) {
    weights_.clear();
    sums_ = {};
  }
  const Tensor losses = model.target_losses(ctx, tokens);
  Weights& weights = weights_.emplace_back();
  weights.of_rows = ctx.empty(losses.rows(), 1, DType::f32);
  if (!ctx.device().keeps_values()) return;
  weights.values.resize(losses.rows());
  weights.chosen.resize(losses.rows());
  const std::vector<ScoredPair> pairs = scored_pairs(ctx, tokens, losses);
  for (std::int64_t s = 0; s < std::ssize(pairs); ++s)
    weigh(pairs[s], s * tokens.rows.positions, weights);
}

void PreferenceTerm::finish_scores(const Context& ctx, const StepInput& input) {
  double each = 0;  // of a chosen target; a pass divides by the pairs
  if (alpha() > 0) {
    double chosen = ctx.grid.leads_place() ? sums_[7] : 0;
    ctx.grid.world().all_reduce(buffer(std::span(&chosen, 1)), "chosen targets").wait();
    each = alpha() * static_cast<double>(input.tokens) / std::max(chosen, 1.0);
  }
  for (Weights& weights : weights_) {
    std::vector<float> values;
    for (std::size_t r = 0; r < weights.values.size(); ++r)
      values.push_back(static_cast<float>(weights.values[r] + (weights.chosen[r] ? each : 0)));
    if (!values.empty())
      ctx.device().copy_from_host(weights.of_rows.view().data, values.data(),
                                  weights.of_rows.bytes());
  }
}

void PreferenceTerm::begin_pass(Context& ctx, const Rows&, const View&) {
  ctx.attach(std::make_shared<RowWeights>(RowWeights{weights_.at(next_++).of_rows}));
}

void PreferenceTerm::finish_sums(const Context& ctx, const View& sums) {
  if (ctx.grid.leads_place()) ctx.device().copy_from_host(sums.data, sums_.data(), sizeof sums_);
}

std::optional<double> PreferenceTerm::loss(std::span<const double> sums,
                                           const StepInput& input) const {
  const double likelihood = alpha() > 0 ? alpha() * sums[6] / std::max(sums[7], 1.0) : 0;
  return sums[0] / static_cast<double>(input.tokens) + likelihood;
}

std::vector<Metric> PreferenceTerm::metrics(std::span<const double> sums,
                                            const StepInput& input) const {
  const auto mean = [&](double sum) { return sum / static_cast<double>(input.tokens); };
  std::vector<Metric> all = {
      {.name = "rewards/chosen", .value = mean(sums[1])},
      {.name = "rewards/rejected", .value = mean(sums[2])},
      {.name = "rewards/accuracies", .value = mean(sums[3]), .in_line = "right"},
      {.name = "rewards/margins", .value = mean(sums[1] - sums[2]), .in_line = "margin"},
      {.name = "logps/chosen", .value = mean(sums[4])},
      {.name = "logps/rejected", .value = mean(sums[5])}};
  if (alpha() > 0) all.push_back({.name = "nll_loss", .value = sums[6] / std::max(sums[7], 1.0)});
  return all;
}

}  // namespace axonn
