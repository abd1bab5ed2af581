#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/loss_term.h"

namespace axonn {

struct Corpus;

/// A pair of answers as a sequence of rows holds it (PairSequences): its score, and for each row
/// that counts the answer, 0 chosen or 1 rejected; -1 for others.
struct ScoredPair {
  std::uint64_t key = 0;  ///< a hash of the rows
  std::array<AnswerScore, 2> answers = {};
  std::vector<int> answer_of_row = {};

  /// Whether both answers are there; made-up rows, as for a dry run, have but one.
  bool whole() const { return answers[0].tokens > 0 && answers[1].tokens > 0; }
};

/// The pairs of a micro-batch, in the order of its sequences, from the losses (R, 2) f32 of its
/// targets (Model::target_losses). Sums are f64, in the order of rows. Waits for the device.
std::vector<ScoredPair> scored_pairs(const Context& ctx, const Tokens& tokens,
                                     const Tensor& losses);

/// The sums of log-probabilities of all answers of the training data under a reference.
class ReferenceScores {
 public:
  void set(std::uint64_t key, const std::array<double, 2>& sums) { sums_[key] = sums; }
  /// Of the chosen and the rejected answer. Throws Error for a pair that is not of the data.
  const std::array<double, 2>& of(std::uint64_t key) const;

 private:
  std::unordered_map<std::uint64_t, std::array<double, 2>> sums_;
};

/// Scores the corpus' pairs with the model that [preference] reference names, on the run's grid,
/// and frees it. Null if the run's loss has no reference. Collective over world. Costs a forward
/// pass of each pair. Throws UsageError if there is no such model.
std::shared_ptr<const ReferenceScores> reference_scores(const PreparedRun& run, Communicator& world,
                                                        const Corpus& corpus);

/// The loss of pairs of answers. Its gradient is that of a cross-entropy whose rows are weighted:
/// score() finds the weights, and a pass gets them as RowWeights. TrainStep's losses of tokens are
/// replaced by the mean over the step's pairs, which StepInput::tokens counts.
class PreferenceTerm final : public LossTerm {
 public:
  PreferenceTerm(const PreferenceConfig& config, std::shared_ptr<const ReferenceScores> reference)
      : config_(config), reference_(std::move(reference)) {}

  std::int64_t count() const override { return kSums; }
  std::string graph_obstacle() const override;
  bool scores() const override { return true; }
  void score(const Context& ctx, Model& model, const Tokens& tokens, int micro) override;
  /// All-reduces the number of chosen tokens, an f64, if the loss adds their likelihood.
  void finish_scores(const Context& ctx, const StepInput& input) override;
  void begin_step(const StepInput&) override { next_ = 0; }
  void begin_pass(Context& ctx, const Rows& rows, const View& sums) override;
  void finish_sums(const Context& ctx, const View& sums) override;
  std::optional<double> loss(std::span<const double> sums, const StepInput& input) const override;
  /// By the names of TRL: means over the step's pairs.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override;

 private:
  /// Loss; rewards of the two answers; pairs whose chosen answer has more; log-probabilities; the
  /// losses of the chosen answers' tokens, and their number.
  static constexpr std::int64_t kSums = 8;
  /// The weights of a micro-batch's rows.
  struct Weights {
    Tensor of_rows;              ///< (R, 1) f32
    std::vector<double> values;  ///< the same in host memory
    std::vector<bool> chosen;    ///< whether the row's target is of a chosen answer
  };
  /// Sets the weights of the rows of a pair, which begin at `first`, and counts it.
  void weigh(const ScoredPair& pair, std::int64_t first, Weights& weights);
  double alpha() const { return adds_likelihood(config_.loss) ? config_.cpo_alpha : 0; }

  PreferenceConfig config_;
  std::shared_ptr<const ReferenceScores> reference_;  // null: none, or nothing is read
  std::array<double, kSums> sums_ = {};               // of this rank's pairs
  std::vector<Weights> weights_;                      // of each micro-batch
  std::size_t next_ = 0;                              // the micro-batch of the next pass
};

}  // namespace axonn
