#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/parallel/whole_rows.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/loss_term.h"
#include "axonn/run/train/step.h"

namespace axonn {

class Batches;
struct Corpus;

/// What a loss needs to know of a sequence of two answers (PairSequences) besides its rows.
struct AnswerFacts {
  std::array<double, 2> reference = {};  ///< the answers' sums of log-probabilities under it
  bool good = true;                      ///< the label of the first answer, if it has one
  std::int64_t prompt_rows = 0;          ///< rows of the first answer's prompt
};

/// Those of each sequence, by its own number (Sequences::own_number).
using AnswerTable = std::vector<AnswerFacts>;

/// Of training and of validation; null without such answers.
struct AnswerTables {
  std::shared_ptr<const AnswerTable> training = {}, validation = {};
};

/// The facts of the corpus' answers, scored with the model that [preference] reference names, on
/// the run's grid, which is freed then; without scores if the loss has no reference. Collective
/// over world. Costs a forward pass of each answer, unless rank 0 finds the scores in the folder of
/// a cache (ReferenceScores; "": there is none). Throws UsageError if there is no such model.
AnswerTables answer_tables(const PreparedRun& run, Communicator& world, const Corpus& corpus,
                           const std::string& cache_folder);

/// What a row of a sequence of two answers has for a target.
enum class RowOf : std::int8_t { nothing = -1, first = 0, second = 1, prompt };

/// Two answers as a sequence of rows holds them: their scores, without those of the reference.
struct ScoredPair {
  std::int64_t number = -1;  ///< Tokens::numbers; -1: made-up rows
  std::array<AnswerScore, 2> answers = {};
  std::vector<RowOf> rows = {};
  std::vector<float> shares = {};  ///< of each row's log-probability in its answer's score
  double first_loss = 0;           ///< sum of the losses of the rows of first and prompt
  std::int64_t first_targets = 0;  ///< their number
  double weight = 1;               ///< of the pair's loss

  /// Whether both answers are there; made-up rows, as for a dry run, have but one, padding none.
  bool whole() const { return answers[0].tokens > 0 && answers[1].tokens > 0; }
};

/// The pairs of a micro-batch, in the order of its sequences, from the losses (R, 2) f32 of its
/// targets (Model::target_losses). A target in the first answer's prompt (AnswerTable; null: none
/// is) counts for none of the scores, and one beyond the length of the shorter answer by ld_alpha.
/// Sums are f64, in the order of rows. Waits for the device. Collective over the ranks that share
/// the sequences.
std::vector<ScoredPair> scored_pairs(const Context& ctx, const Tokens& tokens, const Tensor& losses,
                                     const AnswerTable* table, double ld_alpha = 1);

/// The loss of answers. Its gradient is that of a cross-entropy whose rows are weighted: score()
/// and finish_scores() find the weights, and a pass gets them as RowWeights. TrainStep's losses of
/// tokens are replaced by the mean over the step's sequences, which StepInput::tokens counts.
class PreferenceTerm final : public LossTerm {
 public:
  /// table: null if nothing is read.
  PreferenceTerm(const PreferenceConfig& config, std::shared_ptr<const AnswerTable> table)
      : config_(config), table_(std::move(table)) {}

  std::int64_t count() const override { return kSums; }
  std::string graph_obstacle() const override;
  bool scores() const override { return true; }
  void score(const Context& ctx, Model& model, const Tokens& tokens, int micro) override;
  /// The loss and the figures of held-out answers that are not trained: those of batches, which
  /// have an end. Collective over world.
  StepResult evaluate(Context ctx, Model& model, Batches& batches);
  /// All-reduces two f64 if the loss adds the likelihood of answers or estimates a divergence, and
  /// the scores of all pairs if it sorts them.
  void finish_scores(const Context& ctx, const StepInput& input) override;
  void begin_step(const StepInput&) override { next_ = 0; }
  void begin_pass(Context& ctx, const Rows& rows, const View& sums) override;
  void finish_sums(const Context& ctx, const View& sums) override;
  std::optional<double> loss(std::span<const double> sums, const StepInput& input) const override;
  /// By the names of TRL: means over the step's answers of each kind, if there are any.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override;

 private:
  /// Sums over answers: of the losses; of the rewards and log-probabilities of chosen or good ones
  /// and of the others, and their numbers; of the pairs whose chosen answer has the larger reward;
  /// of the losses of the first answers' targets, and their number; of the log-ratios of labelled
  /// examples' prompts with answers of others.
  enum Sum {
    kLoss,
    kReward,
    kLogp = kReward + 2,
    kCount = kLogp + 2,
    kRight = kCount + 2,
    kFirstLoss,
    kFirstTargets,
    kDivergence,
    kSums
  };
  struct MicroPairs {
    Tensor weights;  ///< (R, 1) f32
    WholeRows rows;
    std::vector<ScoredPair> pairs;
  };
  /// What a step's losses have in common.
  struct Shared {
    double divergence = 0;
    double each = 0;  ///< the weight of each of the first answers' targets, besides its answer's
    std::vector<PairLoss> sorted =
        {};  ///< sorted_losses() of this coordinate's pairs, in their order
  };
  /// The derivatives of the loss of both answers, which is added to the sums. `more` is added to
  /// the loss.
  std::array<double, 2> add_pair(const ScoredPair& pair, const PairLoss& more);
  std::array<double, 2> add_example(const ScoredPair& pair, double divergence);
  void add_answer(const AnswerScore& answer, int kind);
  double logp_of(const AnswerScore& answer) const;
  /// With the reference, if there is one.
  std::array<AnswerScore, 2> answers_of(const ScoredPair& pair) const;
  /// Scores the pairs of a micro-batch, and adds to the sums what Shared is made of.
  std::vector<ScoredPair> scored(const Context& ctx, Model& model, const Tokens& tokens);
  /// Collective over world if one of these is needed.
  Shared shared(const Context& ctx, const StepInput& input) const;
  std::vector<PairLoss> sorted(const Context& ctx) const;
  /// Appends the weights of the pair's rows. `more` is added to the loss of a whole pair.
  void append_weights(const ScoredPair& pair, const Shared& of_step, const PairLoss& more,
                      std::vector<float>& weights);
  double alpha() const { return likelihood_weight(config_); }

  PreferenceConfig config_;
  std::shared_ptr<const AnswerTable> table_;
  std::array<double, kSums> sums_ = {};  // of this rank's sequences
  std::vector<MicroPairs> micros_;
  std::size_t next_ = 0;  // the micro-batch of the next pass
};

}  // namespace axonn
