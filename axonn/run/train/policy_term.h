#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus/rollouts/rollout_sequences.h"
#include "axonn/ranks/parallel/whole_rows.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/loss_term.h"
#include "axonn/run/train/rollout_sampler.h"
#include "axonn/run/train/step.h"

namespace axonn {

class Batches;

/// Name of the file of a checkpoint that holds PolicyTerm::state().
inline constexpr const char* kGenerationName = "generation.json";

/// The answers of [rl] as the steps of a run have them, and the reference.
struct PolicyData {
  std::shared_ptr<const RolloutFile> file;
  std::shared_ptr<const RolloutSequences> sequences;
  LoadedModel* reference = nullptr;  ///< null: there is none
  /// Writes the answers of each generation into `written`, which is `file`; null: these are
  /// recorded.
  std::shared_ptr<RolloutSampler> sampler = {};
  std::shared_ptr<RolloutFile> written = {};
  /// The sampler's log-probabilities are those of the training pass to the bit, or the run ends.
  bool batch_invariant = false;
};

/// The loss of answers with rewards (policy_loss()). Its gradient is that of a cross-entropy whose
/// rows are weighted, as that of PreferenceTerm. TrainStep's losses of tokens are replaced by the
/// loss of the step's answers, which StepInput::tokens counts. With PolicyLoss::distill it only has
/// the answers written, and another term has the loss.
class PolicyTerm final : public LossTerm {
 public:
  /// data.file null: nothing is read, as in a dry run.
  PolicyTerm(const RlConfig& config, PolicyData data);

  /// Before the input of step n is made: lets the sampler write the answers of its generation,
  /// finds their advantages, and, where the loss needs them, the log-probabilities that policy and
  /// reference have now of all the generation's answers, in a forward pass of each. Does nothing,
  /// and returns false, if the generation has begun. Collective over world.
  bool begin_generation(Context ctx, Model& model, Batches& batches, std::int64_t n);

  /// The answers that the sampler wrote, a line each (rollout_line()).
  std::string lines(const Tokenizer* tokenizer) const;
  /// What the user should know of the current generation; empties it.
  std::vector<std::string> take_warnings() { return std::exchange(cost_.warnings, {}); }

  /// What a run needs to go on within a generation, as JSON: the policy's log-probabilities at its
  /// begin, and the answers that the sampler wrote; "" if it needs none. The same on every rank.
  std::string state() const;
  /// Restores it; step n is the next one. Throws UsageError, beginning with `location`, for another
  /// text.
  void set_state(std::string_view json, std::int64_t n, const std::string& location);

  const PolicyData& data() const { return data_; }

  std::int64_t count() const override { return 0; }
  std::string graph_obstacle() const override;
  bool scores() const override { return weighs_answers(config_); }
  /// Without data, as in a dry run, also the reference's pass, which a generation has.
  void score(const Context& ctx, Model& model, const Tokens& tokens, int micro) override;
  /// All-reduces eleven f64 of each of the step's answers, and with rl.top_entropy_quantile the
  /// entropy of each of their tokens.
  void finish_scores(const Context& ctx, const StepInput& input) override;
  void begin_step(const StepInput& input) override;
  void begin_pass(Context& ctx, const Rows& rows, const View& sums) override;
  std::optional<double> loss(std::span<const double> sums, const StepInput& input) const override;
  /// By the names of TRL.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override;

 private:
  /// Of one answer of a step, summed over its tokens.
  enum Figure {
    kLoss,
    kTokens,
    kKl,
    kLow,
    kHigh,
    kCorrection,
    kLeastCorrection,
    kLargestCorrection,
    kDifference,
    kDifferenceLargest,
    kEntropy,
    kFigures
  };
  struct Answer {
    std::int64_t number = -1;    // of the file; -1: padding
    std::int64_t first_row = 0;  // of the micro-batch's whole rows, with the answer's first target
    std::vector<double> policy = {};
    std::vector<double> entropy = {};  // of each token's distribution; empty: not asked for
  };
  struct Micro {
    Tensor weights, bonus;  // (R, 1) and (R, 2) f32, see RowWeights
    WholeRows rows;
    std::vector<Answer> answers;
  };
  /// Of each answer of a generation, in its order.
  struct Generation {
    std::int64_t number = -1;
    std::vector<double> rewards, advantages;
    std::vector<double> divergences;  // of whole answers, where the loss takes them from rewards
    std::vector<std::vector<double>> old, reference;  // of tokens; empty: none
  };

  const Rollout& rollout(std::int64_t number) const { return data_.file->answers.at(number); }
  std::int64_t first() const { return data_.sequences->first_of(generation_.number); }
  bool needs_reference() const { return kl_of(config_) > 0; }
  /// Which of an answer's tokens have a loss.
  std::vector<std::uint8_t> counting(const Rollout& rollout) const;
  /// Their number.
  double tokens_of(std::int64_t number) const;
  void attach_temperature(Context& ctx) const;
  /// With PolicyData::batch_invariant, refuses answers whose tokens had other log-probabilities
  /// when they were written.
  void check_sampler() const;
  /// The answers of a micro-batch, with the log-probabilities that the model has of their tokens.
  std::vector<Answer> answers_of(const Context& ctx, Model& model, const Tokens& tokens) const;
  /// The log-probabilities of the generation that begins with step n, of policy or reference.
  std::vector<std::vector<double>> scores(const Context& ctx, Model& model, Batches& batches,
                                          std::int64_t n) const;
  void name_rewards();
  void find_advantages();
  /// Of each answer of the generation.
  std::vector<std::vector<double>> rewards_of_each() const;
  /// Whether a generation serves several steps, so that a checkpoint within it must hold it.
  bool keeps_generation() const { return steps_of_generation(config_) > 1; }
  /// Mean over tokens of what was taken from rewards.
  double divergence_of_generation() const;
  PolicyDivisors divisors(std::span<const std::int64_t> numbers) const;
  /// Of the current step. Collective over world if rl.top_entropy_quantile is less than 1.
  EntropyRule rule_of_step(const Grid& grid) const;
  /// Of the whole rows of a micro-batch.
  struct RowValues {
    std::vector<float> weights, bonuses, entropies;
  };
  /// Sets the figures of an answer, and the values of its rows.
  void add_answer(const Answer& answer, const PolicyDivisors& by, double count, RowValues& rows);
  /// Gives a micro-batch the values of its rows.
  void set_rows(const Context& ctx, const Micro& micro, const RowValues& values) const;
  std::vector<std::int64_t> numbers_of(std::int64_t step) const;
  std::span<const double> figures_of(std::int64_t answer) const {
    return std::span(figures_).subspan(answer * kFigures, kFigures);
  }
  void add_rewards(std::vector<Metric>& all) const;
  void add_ratios(std::vector<Metric>& all) const;
  void add_lengths(std::vector<Metric>& all) const;
  void add_sampler(std::vector<Metric>& all) const;

  RlConfig config_;
  PolicyData data_;
  std::vector<std::array<std::string, 2>> reward_metrics_;  // names of each reward's mean and std
  Generation generation_;
  SamplingCost cost_;
  std::vector<Micro> micros_;
  std::vector<std::int64_t> numbers_;  // of the step's answers
  std::vector<double> figures_;        // (answers, kFigures), over all ranks
  EntropyRule rule_;                   // of the step
  std::size_t next_ = 0;               // the micro-batch of the next pass
};

}  // namespace axonn
