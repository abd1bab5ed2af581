#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "axonn/network/nn/options.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// The experts that routers chose: for each row of each layer `per_row` ascending numbers. Rows
/// have their numbers among all of the training (Rows::for_each_run), so a record of one grid
/// serves any other. Thread-safe: ranks may share it.
class RoutingRecord {
 public:
  /// Stores the choices of consecutive rows from `first` on: ids.size() / per_row rows.
  void put(std::int64_t layer, std::int64_t first, std::int64_t per_row,
           std::vector<std::int32_t> ids);
  /// Reads them. Throws if a row is missing, or was stored with another number of experts.
  void get(std::int64_t layer, std::int64_t first, std::int64_t per_row,
           std::span<std::int32_t> ids) const;
  void clear();
  /// Adds what other processes have recorded. Collective.
  void share(Communicator& world);

 private:
  struct Run {
    std::int64_t per_row = 0;
    std::vector<std::int32_t> ids;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::int64_t, std::int64_t>, Run> runs_;  // by layer and first row
};

/// State that routers share during a training step: what they chose, how often each expert was
/// chosen, and the losses that keep experts equally busy.
///
/// L' layers with E experts, k chosen per row; N rows of the step that are not padding; f_i =
/// count_i / (k N'), P_i = mean of s_i / (sum of s over all experts) for the scores s of a row,
/// both over the N' rows of the balance's scope:
///
///   balance   1 / L' · sum over layers and scopes of N' / N · E · sum_i f_i P_i: 1 if even
///             (hugging_face: f and P are means over layers, too, and the sum is times k)
///   z         1 / (L' N) · sum over layers and rows of logsumexp(logits)²
///
/// f is a constant in gradients. Counts are of the choices that were made, with the routers'
/// biases, and come from first passes only, not from recomputation.
///
/// Communication per micro-batch: a sum of L' · S · (2E + 2) f64 for S sequences of the coordinate,
/// over x and the context; for scopes of several coordinates one of L' · (2E + 2) over z and data.
///
/// Sources: Fedus et al., "Switch Transformers", 2022; Zoph et al., "ST-MoE", 2022; Wang et al.,
/// "Auxiliary-loss-free load balancing strategy for mixture-of-experts", 2024; DeepSeek-AI,
/// "DeepSeek-V3 technical report", 2024, equations 17 to 20.
class Routing {
 public:
  struct Options {
    BalanceConfig balance = {};
    std::int64_t layers = 0;          ///< L'
    std::int64_t experts = 0;         ///< E
    std::int64_t per_row = 0;         ///< k
    RoutingRecord* replay = nullptr;  ///< the choices to repeat instead of choosing; null: none
    RoutingRecord* record = nullptr;  ///< receives the choices; null: none
  };
  explicit Routing(const Options& options) : options_(options) {}

  const Options& options() const { return options_; }
  void set_records(RoutingRecord* replay, RoutingRecord* record);

  /// Begins a step of so many rows of all ranks together, without padding: N. From end_row on, all
  /// numbers of rows are those of padding, whose choices are neither recorded nor replayed.
  /// loss_scale multiplies the gradients of the losses.
  void begin_step(std::int64_t rows,
                  std::int64_t end_row = std::numeric_limits<std::int64_t>::max(),
                  double loss_scale = 1);
  /// Begins the forward pass of a micro-batch of these rows.
  void begin_pass(const Context& ctx, const Rows& rows);

  /// Reads the choices of a router for a chunk into ids (R, k) i32, if they are known: to be
  /// replayed, or those of the first run of a pass that is repeated. Else returns false.
  bool recall(const Context& ctx, std::int64_t layer, const Chunk& inp, const Tensor& ids) const;
  /// Results of a router for a chunk: ids (R, k) i32, scores (R, E), log_sums (R, 1) f32, and
  /// score_sums (R, 1) f32 or empty, as ops::RouteCounts has it.
  struct Choice {
    Tensor ids, scores, log_sums, score_sums;
  };
  /// Counts and records a choice, unless the pass is the second run.
  void note(const Context& ctx, std::int64_t layer, const Chunk& inp, const Choice& choice);

  /// With RunSettings::keep_dispatch, keeps the rows that experts got for a chunk in the first run
  /// of a pass that is repeated.
  void keep(const Context& ctx, std::int64_t layer, const Chunk& inp, const Tensor& rows);
  /// In the second run, moves them out; empty if there are none.
  Tensor take_kept(const Context& ctx, std::int64_t layer, const Chunk& inp);

  /// Ends the forward pass: sums the counts over ranks. Backward may begin then.
  void finish_pass(const Context& ctx);

  /// (S, E) f32: the gradients of the balance loss for the rows' shares s_i / (sum of s), in each
  /// of a chunk's sequences. Empty if its weight is 0.
  View balance(std::int64_t layer, const Rows& rows) const;
  /// The factor of logsumexp² in the loss: β / (L' · N).
  float z_factor() const;

  /// This rank's summands of the step's losses, unweighted, and of the counts: of each layer, of
  /// each expert. Their sums over all ranks are the step's.
  struct Sums {
    double balance = 0, z = 0;
    std::vector<double> counts;  ///< L' · E
  };
  const Sums& sums() const { return sums_; }

 private:
  std::int64_t width() const { return 2 * options_.experts + 2; }
  std::int64_t first_sequence(const Rows& rows) const;
  void count(std::span<const double> counts);
  double balance_sequences(std::span<const double> counts, std::span<float> gradients);
  double balance_batch(const Context& ctx, std::span<const double> counts,
                       std::span<float> gradients);
  double balance_scope(std::span<const double> counts, std::span<float> to) const;

  Options options_;
  std::int64_t rows_ = 0;  // N
  std::int64_t end_row_ = 0;
  double loss_scale_ = 1;
  Rows pass_;
  bool rows_cut_ = false;  // over x, in this pass
  Tensor counts_;          // (L' · S, 2E + 2) f64, see ops::RouteCounts
  Tensor balance_;         // (L' · S, E) f32
  RoutingRecord first_run_;
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> kept_;  // by layer and first row
  Sums sums_;
};

}  // namespace axonn
