#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/network/model/config.h"
#include "axonn/network/nn/loss.h"
#include "axonn/network/nn/norm.h"
#include "axonn/network/nn/tokens.h"
#include "axonn/ranks/parallel/block.h"

namespace axonn {

/// The routers of a model's mixtures of experts.
struct Routers {
  std::int64_t experts = 0;  ///< E of each
  std::int64_t per_row = 0;  ///< k
  /// Of each layer with experts, the bias that only selects, or null.
  std::vector<const ParameterSpec*> biases = {};
};

/// A language model that the trainer can train: groups of parameters and a loss. It is written as
/// for one device; the Context says on which grid it runs.
class Model {
 public:
  virtual ~Model() = default;

  /// Every group, in the order of the forward pass.
  virtual std::vector<ParameterGroup*> groups() = 0;

  /// Adds the sum of this rank's token losses to total (1, 1) f64; with ctx.tape, records the
  /// gradient of scale · that sum.
  virtual void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) = 0;

  /// Returns (R, 2) f32, a row for each of this rank's targets: its loss in nats, and 1 if greedy
  /// decoding takes it, else 0. Both are 0 for a negative target. Ranks that differ only in x or y
  /// have the same targets. ctx must have no tape. A LanguageModel returns TokenRecords in their
  /// place if these are attached to ctx.
  virtual Tensor target_losses(const Context& ctx, const Tokens& tokens) = 0;

  /// Logits (n, V/Gx) f32 of the tokens that follow n of the rows. ctx must have no tape. With
  /// a KeyValueCache, the rows' sequences may have begun in earlier passes.
  virtual Tensor next_logits(const Context& ctx, const Tokens& tokens,
                             std::span<const std::int64_t> rows) = 0;

  /// Hidden states (R, H/Gy) after the last norm of all rows, the same on ranks that differ in x.
  /// ctx must have no tape. The default throws UsageError: the model has none to give.
  virtual Tensor hidden_states(const Context& ctx, const Tokens& tokens);

  /// Gives initial values to parameters for which they follow from those of others, which all have
  /// theirs: the magnitudes of adapters. By default there are none. Collective.
  virtual void initialise_from_others(const Context&) {}

  virtual std::int64_t vocab() const = 0;

  /// Whether next_logits() supports a KeyValueCache. If not, generation computes all tokens of a
  /// sequence for each new one.
  virtual bool caches() const { return true; }
  /// Whether every next_logits() of as many rows with a KeyValueCache does the same work at the
  /// same addresses, whatever the values, without the host: it can be captured as a device graph.
  virtual bool repeats_passes() const { return false; }
  /// Its routers, with as many biases as layers with experts; none by default.
  virtual Routers routers() const { return {}; }
  /// The layers that predict further tokens (MtpLayer); Tokens::further has as many for them.
  virtual std::int64_t mtp_layers() const { return 0; }
  /// Flops of one token, forward and backward, in sequences of seq_len tokens. By default 6 for
  /// each trained parameter and 4 for each frozen one.
  virtual double flops_per_token(std::int64_t seq_len);
  /// Flops of a token's forward pass through all blocks, which recomputation repeats. By default a
  /// third of flops_per_token().
  virtual double block_flops_per_token(std::int64_t seq_len) {
    return flops_per_token(seq_len) / 3;
  }
  /// The sizes, for logs and reports: "2 layers, width 96, 24 heads". Empty: none.
  virtual std::string describe() const { return {}; }
};

class LanguageModel;

/// Attached to a pass of LanguageModel::loss(), the losses of tokens become divergences of their
/// distributions from a teacher's: see CrossEntropy::divergence().
struct Teaching {
  LanguageModel* teacher;
  Context ctx;             ///< of the teacher, on a grid of the same shape; without a tape
  float beta = 0;          ///< see ops::DivergenceTerms
  float temperature = 1;   ///< by which the logits of both are divided
  View losses;             ///< (1, 2) f64, see CrossEntropy::Teacher
  std::int64_t top_k = 0;  ///< likewise
};

/// A Model that ends in a norm and an output layer over the vocabulary. Implements the losses and
/// logits; a model adds its groups and what comes before the norm.
class LanguageModel : public Model {
 public:
  void loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) override;
  Tensor target_losses(const Context& ctx, const Tokens& tokens) override;
  Tensor next_logits(const Context& ctx, const Tokens& tokens,
                     std::span<const std::int64_t> rows) override;
  Tensor hidden_states(const Context& ctx, const Tokens& tokens) override;

  /// The end of the model.
  struct Head {
    const Norm& norm;
    const CrossEntropy& output;
    std::vector<ParameterGroup*>
        groups;       ///< of norm and output; the embedding's, too, if weights are tied
    float scale = 1;  ///< of the logits
  };

 protected:
  virtual Head head() = 0;

  /// Returns the norm's input.
  virtual Var hidden(const Context& ctx, const Tokens& tokens) = 0;

 private:
  /// loss() with a teacher.
  void learn(const Context& ctx, const Teaching& teaching, const Tokens& tokens, float scale,
             const Tensor& total);
};

/// The cost of reading parameters for this rank.
struct LoadCost {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// Called with the bytes read or written so far, and in all.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// The groups that are trained: all, or only those of the adapters if the model has any.
std::vector<ParameterGroup*> trained_groups(Model& model);

/// Makes this rank's part of a model of any family from a resolved config. Throws UsageError if the
/// grid cannot cut a size, and Error for a registered family if its `make` returns null, or if the
/// model has no group, a group twice, or two parameters of one name.
std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid);

/// A family of models that a program adds to those of this library. Its hyperparameters are the
/// keys of a section [name] of the config; they are validated, printed, and saved in checkpoints as
/// every other key is.
struct Architecture {
  std::string name;  ///< the value of model.family
  std::string help;  ///< of the section [name], one line
  std::vector<OwnKey> keys = {};
  /// Throws UsageError for hyperparameters that do not fit one another. Empty: all fit.
  std::function<void(const ModelConfig&)> validate = {};
  /// Makes this rank's part of a model from a resolved config; see make_model().
  std::function<std::unique_ptr<Model>(const ModelConfig&, const Grid&)> make;
};

/// Adds a family, so that every command and config of this process knows it. Call it at the
/// beginning of main(), before a config is read. Throws Error if it has no `make`, or if a name is
/// taken or not one of small letters, digits and '_'.
void register_architecture(Architecture architecture);

/// The architecture that was registered for this family; null for the library's own families.
/// Throws Error for a value that is no family.
const Architecture* architecture_of(ModelFamily family);

}  // namespace axonn
