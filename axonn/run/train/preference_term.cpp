#include "axonn/run/train/preference_term.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/preferences/pair_sequences.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/loss.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/stored_values.h"
#include "axonn/ranks/parallel/whole_rows.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/reference_scores.h"
#include "axonn/run/train/step.h"

namespace axonn {

namespace {

/// The sums that the model, as the reference, has for the two answers of each sequence.
std::vector<double> scores_of(LoadedModel& model, const PreparedRun& run,
                              const std::shared_ptr<const PairSequences>& sequences,
                              const AnswerTable& table) {
  const TrainingConfig& t = run->training;
  const int coordinates = model.grid().batch_coordinates();
  Batches batches(sequences, {},
                  {.seq_len = t.seq_len,
                   .global_batch = t.micro_batch * coordinates,
                   .micro_batch = t.micro_batch,
                   .coordinate = model.grid().batch_coordinate(),
                   .coordinates = coordinates,
                   .end = sequences->count()});
  const Context ctx = model.context();
  std::vector<double> sums(2 * sequences->count());
  StepState state;
  Context pass = ctx;
  pass.own_scheduling().step = &state;
  for (std::int64_t step = 0; step < batches.steps(); ++step)
    for (const MicroBatch& micro : batches.at(step)->micro_batches) {
      state.prefetcher.begin_pass();
      const Tokens tokens = make_tokens(ctx, micro);
      const Tensor losses = model.model().target_losses(pass, tokens);
      for (const ScoredPair& pair :
           scored_pairs(ctx, tokens, losses, &table, run->preference.ld_alpha)) {
        if (!model.grid().leads_batch_coordinate()) continue;
        for (std::size_t side = 0; side < 2; ++side)
          sums[2 * pair.number + side] += pair.answers[side].policy;
      }
    }
  model.grid().world().all_reduce(buffer(std::span(sums)), "reference").wait();
  return sums;
}

/// Scores answers with the reference, which it loads when one needs it.
class ReferenceModel {
 public:
  ReferenceModel(const PreparedRun& run, Communicator& world, const std::string& cache_folder)
      : run_(run), world_(world), stored_(world.rank() == 0 ? cache_folder : "", run) {}

  /// Sets the reference's sums in the table, those of a file if rank 0 has it. Collective.
  void score(const DocumentRange& answers, const std::shared_ptr<const PairSequences>& sequences,
             AnswerTable& table) {
    std::optional<std::vector<double>> sums = stored_.read(answers, 2 * sequences->count());
    std::int64_t found = sums ? 1 : 0;
    world_.broadcast(buffer(std::span(&found, 1)), 0, "reference").wait();
    if (!sums) sums.emplace(2 * sequences->count());
    if (found == 0) {
      if (!model_) load();
      sums = scores_of(*model_, run_, sequences, table);
      if (world_.rank() == 0) stored_.write(answers, *sums);
    } else {
      world_.broadcast(buffer(std::span(*sums)), 0, "reference").wait();
    }
    for (std::size_t n = 0; n < table.size(); ++n)
      table[n].reference = {(*sums)[2 * n], (*sums)[2 * n + 1]};
  }

 private:
  void load() {
    const std::string& named = run_->preference.reference;
    model_.emplace(model_beside(run_.config(), named.empty() ? run_->model.path : named), world_);
    model_->initialise();
  }

  const PreparedRun& run_;
  Communicator& world_;
  const ReferenceScores stored_;
  std::optional<LoadedModel> model_;
};

/// Sets the pair's sums from its rows' losses, of which each is the first of two values.
void add_losses(std::span<const float> of_rows, double ld_alpha, ScoredPair& pair) {
  const std::int64_t shorter = std::min(pair.answers[0].tokens, pair.answers[1].tokens);
  std::array<std::int64_t, 2> seen{};
  pair.shares.assign(pair.rows.size(), 0);
  for (std::size_t r = 0; r < pair.rows.size(); ++r) {
    const RowOf row = pair.rows[r];
    if (row == RowOf::nothing) continue;
    const double loss = of_rows[2 * r];
    if (row != RowOf::second) {
      pair.first_loss += loss;
      ++pair.first_targets;
    }
    if (row == RowOf::prompt) continue;
    const auto answer = static_cast<std::size_t>(row);
    pair.shares[r] = static_cast<float>(seen[answer]++ < shorter ? 1 : ld_alpha);
    pair.answers[answer].policy -= static_cast<double>(pair.shares[r]) * loss;
  }
}

/// The losses of the targets with logits twice as large, in a pass before another one.
Tensor losses_at_twice(const Context& ctx, Model& model, const Tokens& tokens) {
  StepState& state = *ctx.scheduling().step;
  const bool more = std::exchange(state.more_micro_batches, true);
  Context twice = ctx;
  twice.attach(std::make_shared<LogitFactor>(LogitFactor{2}));
  Tensor losses = model.target_losses(twice, tokens);
  state.more_micro_batches = more;
  state.prefetcher.begin_pass();
  return losses;
}

/// The weights of WPO, Zhou et al., 2406.11827, eq. 2: of both answers, the exponential of the mean
/// of log p of its tokens less the log of the sum of all squared probabilities there.
void set_weights(std::span<const float> of_rows, std::span<const float> at_twice,
                 std::vector<ScoredPair>& pairs) {
  std::size_t row = 0;
  for (ScoredPair& pair : pairs) {
    double exponent = 0;
    for (const RowOf of : pair.rows) {
      if (of == RowOf::first || of == RowOf::second)
        exponent += (static_cast<double>(of_rows[2 * row]) - at_twice[2 * row]) /
                    static_cast<double>(pair.answers[static_cast<std::size_t>(of)].tokens);
      ++row;
    }
    pair.weight = std::exp(exponent);
  }
}

}  // namespace

std::vector<ScoredPair> scored_pairs(const Context& ctx, const Tokens& tokens, const Tensor& losses,
                                     const AnswerTable* table, double ld_alpha) {
  const WholeRows whole(ctx, tokens.rows);
  const auto targets = whole.gather(stored_values<std::int32_t>(ctx, tokens.targets)),
             coordinates = whole.gather(stored_values<std::int32_t>(ctx, tokens.rows.position));
  const auto of_rows = whole.gather(stored_values<float>(ctx, losses), losses.cols());
  const std::int64_t length = whole.positions();
  std::vector<ScoredPair> pairs(tokens.rows.sequences);
  for (std::int64_t s = 0; s < tokens.rows.sequences; ++s) {
    ScoredPair& pair = pairs[s];
    if (!tokens.numbers.empty()) pair.number = tokens.numbers[s];
    const std::int64_t prompt = table && pair.number >= 0 ? table->at(pair.number).prompt_rows : 0;
    pair.rows.assign(length, RowOf::nothing);
    bool second = false;
    for (std::int64_t r = 0; r < length; ++r) {
      // The second answer is a document of its own, or goes on from rows that both have.
      second = second || (r > 0 && coordinates[s * length + r] <= coordinates[s * length + r - 1]);
      if (targets[s * length + r] < 0) continue;
      pair.rows[r] = second ? RowOf::second : r < prompt ? RowOf::prompt : RowOf::first;
      if (pair.rows[r] != RowOf::prompt) ++pair.answers[second].tokens;
    }
    add_losses(std::span(of_rows).subspan(2 * s * length, 2 * length), ld_alpha, pair);
  }
  return pairs;
}

AnswerTables answer_tables(const PreparedRun& run, Communicator& world, const Corpus& corpus,
                           const std::string& cache_folder) {
  std::optional<ReferenceModel> reference;
  if (has_reference(run->preference.loss)) reference.emplace(run, world, cache_folder);
  const auto table_of = [&](const DocumentRange& range, const std::vector<bool>& good) {
    if (range.empty()) return std::shared_ptr<const AnswerTable>();
    const auto sequences = std::make_shared<const PairSequences>(
        range, run->training.seq_len, run->model.vocab, corpus.excess_length, corpus.answers);
    const auto table = std::make_shared<AnswerTable>(sequences->count());
    for (std::int64_t n = 0; n < sequences->count(); ++n) {
      (*table)[n].prompt_rows = sequences->prompt_rows(n);
      if (!good.empty()) (*table)[n].good = good[sequences->number(n)];
    }
    if (reference) reference->score(range, sequences, *table);
    return std::shared_ptr<const AnswerTable>(table);
  };
  return {.training = table_of(corpus.train_documents, corpus.good),
          .validation = table_of(corpus.validation_documents, corpus.validation_good)};
}

std::string PreferenceTerm::graph_obstacle() const { return kWeighsInStep; }

std::array<AnswerScore, 2> PreferenceTerm::answers_of(const ScoredPair& pair) const {
  std::array<AnswerScore, 2> answers = pair.answers;
  for (std::size_t side = 0; side < 2; ++side)
    answers[side].reference = table_->at(pair.number).reference[side];
  return answers;
}

double PreferenceTerm::logp_of(const AnswerScore& answer) const {
  return uses_means(config_.loss) ? answer.policy / static_cast<double>(answer.tokens)
                                  : answer.policy;
}

void PreferenceTerm::add_answer(const AnswerScore& answer, int kind) {
  sums_[kReward + kind] += reward_of(config_, answer);
  sums_[kLogp + kind] += logp_of(answer);
  sums_[kCount + kind] += 1;
}

std::array<double, 2> PreferenceTerm::add_pair(const ScoredPair& pair, const PairLoss& more) {
  const auto [chosen, rejected] = answers_of(pair);
  PairLoss loss = preference_loss(config_, chosen, rejected);
  loss.value += more.value;
  loss.d_chosen += more.d_chosen;
  loss.d_rejected += more.d_rejected;
  sums_[kLoss] += pair.weight * loss.value;
  add_answer(chosen, 0);
  add_answer(rejected, 1);
  sums_[kRight] += reward_of(config_, chosen) > reward_of(config_, rejected) ? 1 : 0;
  return {pair.weight * loss.d_chosen, pair.weight * loss.d_rejected};
}

std::array<double, 2> PreferenceTerm::add_example(const ScoredPair& pair, double divergence) {
  const AnswerScore own = answers_of(pair)[0];
  const bool good = table_->at(pair.number).good;
  const AnswerLoss loss = answer_loss(config_, own, good, divergence);
  sums_[kLoss] += loss.value;
  add_answer(own, good ? 0 : 1);
  return {loss.d, 0};
}

std::vector<ScoredPair> PreferenceTerm::scored(const Context& ctx, Model& model,
                                               const Tokens& tokens) {
  const Tensor at_twice = config_.use_weighting ? losses_at_twice(ctx, model, tokens) : Tensor();
  const Tensor losses = model.target_losses(ctx, tokens);
  if (!ctx.device().keeps_values()) return {};
  std::vector<ScoredPair> pairs = scored_pairs(ctx, tokens, losses, table_.get(), config_.ld_alpha);
  if (config_.use_weighting) {
    const WholeRows whole(ctx, tokens.rows);
    set_weights(whole.gather(stored_values<float>(ctx, losses), losses.cols()),
                whole.gather(stored_values<float>(ctx, at_twice), at_twice.cols()), pairs);
  }
  for (const ScoredPair& pair : pairs) {
    if (!pair.whole()) continue;
    AXONN_CHECK(pair.number >= 0 && table_, "a pair of answers has no number among its data");
    sums_[kFirstLoss] += pair.first_loss;
    sums_[kFirstTargets] += static_cast<double>(pair.first_targets);
    const AnswerScore other = answers_of(pair)[1];
    if (reads_labels(config_.loss)) sums_[kDivergence] += other.policy - other.reference;
  }
  return pairs;
}

void PreferenceTerm::score(const Context& ctx, Model& model, const Tokens& tokens, int micro) {
  if (micro == 0) {
    micros_.clear();
    sums_ = {};
  }
  MicroPairs& mine = micros_.emplace_back();
  mine.weights = ctx.empty(tokens.rows.count(), 1, DType::f32);
  mine.pairs = scored(ctx, model, tokens);
  if (!mine.pairs.empty()) mine.rows = WholeRows(ctx, tokens.rows);
}

StepResult PreferenceTerm::evaluate(Context ctx, Model& model, Batches& batches) {
  StepState state;
  ctx.own_scheduling().step = &state;
  state.more_micro_batches = true;
  micros_.clear();
  sums_ = {};
  for (std::int64_t step = 0; step < batches.steps(); ++step) {
    const std::shared_ptr<const Batch> batch = batches.at(step);
    for (const MicroBatch& micro : batch->micro_batches) {
      state.prefetcher.begin_pass();
      state.more_micro_batches =
          step + 1 < batches.steps() || &micro != &batch->micro_batches.back();
      const Tokens tokens = make_tokens(ctx, micro);
      MicroPairs& mine = micros_.emplace_back();
      mine.pairs = scored(ctx, model, tokens);
      for (ScoredPair& pair : mine.pairs) {  // without the weights of rows
        pair.rows = {};
        pair.shares = {};
      }
    }
  }
  StepInput input;
  input.tokens = batches.options().end;
  finish_scores(ctx, input);
  std::array<double, kSums> sums{};
  if (ctx.grid.leads_batch_coordinate()) sums = sums_;
  ctx.grid.world().all_reduce(buffer(std::span<double>(sums)), "evaluation").wait();
  StepResult result;
  result.loss = *loss(sums, input);
  result.metrics = metrics(sums, input);
  return result;
}

PreferenceTerm::Shared PreferenceTerm::shared(const Context& ctx, const StepInput& input) const {
  Shared found;
  if (sorts_pairs(config_)) found.sorted = sorted(ctx);
  if (alpha() == 0 && config_.loss != PreferenceLoss::kto) return found;
  std::array<double, 2> sums{sums_[kFirstTargets], sums_[kDivergence]};
  if (!ctx.grid.leads_batch_coordinate()) sums = {};
  ctx.grid.world().all_reduce(buffer(std::span<double>(sums)), "answers").wait();
  const auto count = static_cast<double>(input.tokens);
  found.divergence = sums[1] / count;
  found.each = alpha() * count / std::max(sums[0], 1.0);
  return found;
}

std::vector<PairLoss> PreferenceTerm::sorted(const Context& ctx) const {
  std::vector<std::array<AnswerScore, 2>> mine;
  for (const MicroPairs& micro : micros_)
    for (const ScoredPair& pair : micro.pairs)
      if (pair.whole()) mine.push_back(answers_of(pair));
  const bool leads = ctx.grid.leads_batch_coordinate();
  const auto coordinate = static_cast<std::size_t>(ctx.grid.batch_coordinate());
  std::vector<double> counts(ctx.grid.batch_coordinates());
  if (leads) counts[coordinate] = static_cast<double>(mine.size());
  ctx.grid.world().all_reduce(buffer(std::span(counts)), "answers").wait();
  const auto own = counts.begin() + ctx.grid.batch_coordinate();
  const auto begin = static_cast<std::size_t>(std::accumulate(counts.begin(), own, 0.0)),
             total = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0.0));
  std::vector<double> scores(4 * total);  // of all coordinates: each adds its own to zeros
  for (std::size_t i = 0; leads && i < mine.size(); ++i)
    for (std::size_t side = 0; side < 2; ++side) {
      double* const at = &scores[4 * (begin + i) + 2 * side];
      at[0] = mine[i][side].policy;
      at[1] = mine[i][side].reference;
    }
  ctx.grid.world().all_reduce(buffer(std::span(scores)), "answers").wait();
  std::vector<std::array<AnswerScore, 2>> all(total);
  for (std::size_t i = 0; i < total; ++i)
    for (std::size_t side = 0; side < 2; ++side)
      all[i][side] = {.policy = scores[4 * i + 2 * side],
                      .reference = scores[4 * i + 2 * side + 1]};
  const std::vector<PairLoss> losses = sorted_losses(config_, all);
  const auto first = losses.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + std::ssize(mine)};
}

void PreferenceTerm::finish_scores(const Context& ctx, const StepInput& input) {
  const Shared of_step = shared(ctx, input);
  auto next = of_step.sorted.begin();
  for (const MicroPairs& micro : micros_) {
    std::vector<float> weights;
    for (const ScoredPair& pair : micro.pairs) {
      const bool sorted = pair.whole() && next != of_step.sorted.end();
      append_weights(pair, of_step, sorted ? *next++ : PairLoss(), weights);
    }
    if (weights.empty()) continue;
    const std::vector<float> own = micro.rows.own(weights);
    ctx.device().copy_from_host(micro.weights.view().data, own.data(), micro.weights.bytes());
  }
}

void PreferenceTerm::append_weights(const ScoredPair& pair, const Shared& of_step,
                                    const PairLoss& more, std::vector<float>& weights) {
  std::array<double, 2> slopes{};
  if (pair.whole())
    slopes =
        reads_labels(config_.loss) ? add_example(pair, of_step.divergence) : add_pair(pair, more);
  for (std::size_t r = 0; r < pair.rows.size(); ++r) {
    const RowOf row = pair.rows[r];
    double weight = row == RowOf::first || row == RowOf::prompt ? of_step.each : 0;
    // The gradient of the log-probability of a target is minus that of its loss.
    if (row == RowOf::first || row == RowOf::second)
      weight -= slopes[static_cast<std::size_t>(row)] * static_cast<double>(pair.shares[r]);
    weights.push_back(static_cast<float>(weight));
  }
}

void PreferenceTerm::begin_pass(Context& ctx, const Rows&, const View&) {
  ctx.attach(std::make_shared<RowWeights>(RowWeights{micros_.at(next_++).weights}));
}

void PreferenceTerm::finish_sums(const Context& ctx, const View& sums) {
  if (ctx.grid.leads_batch_coordinate())
    ctx.device().copy_from_host(sums.data, sums_.data(), sizeof sums_);
}

std::optional<double> PreferenceTerm::loss(std::span<const double> sums,
                                           const StepInput& input) const {
  const double likelihood =
      alpha() > 0 ? alpha() * sums[kFirstLoss] / std::max(sums[kFirstTargets], 1.0) : 0;
  return sums[kLoss] / static_cast<double>(input.tokens) + likelihood;
}

std::vector<Metric> PreferenceTerm::metrics(std::span<const double> sums,
                                            const StepInput& input) const {
  const auto count = static_cast<double>(input.tokens);
  const auto mean = [&](int sum, int kind) { return sums[sum + kind] / sums[kCount + kind]; };
  const bool chosen = sums[kCount] > 0, rejected = sums[kCount + 1] > 0;
  std::vector<Metric> all;
  if (chosen) all.push_back({.name = "rewards/chosen", .value = mean(kReward, 0)});
  if (rejected) all.push_back({.name = "rewards/rejected", .value = mean(kReward, 1)});
  if (!reads_labels(config_.loss))
    all.push_back(
        {.name = "rewards/accuracies", .value = sums[kRight] / count, .in_line = "right"});
  if (chosen && rejected)
    all.push_back({.name = "rewards/margins",
                   .value = mean(kReward, 0) - mean(kReward, 1),
                   .in_line = "margin"});
  if (chosen) all.push_back({.name = "logps/chosen", .value = mean(kLogp, 0)});
  if (rejected) all.push_back({.name = "logps/rejected", .value = mean(kLogp, 1)});
  if (alpha() > 0)
    all.push_back(
        {.name = "nll_loss", .value = sums[kFirstLoss] / std::max(sums[kFirstTargets], 1.0)});
  const bool moves = config_.loss == PreferenceLoss::kto;
  if (reads_labels(config_.loss))
    all.push_back({.name = "kl", .value = moves ? std::max(0.0, sums[kDivergence] / count) : 0});
  return all;
}

}  // namespace axonn
