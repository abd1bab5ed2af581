#include "axonn/run/train/loss_term.h"

#include "axonn/network/model/mtp_layer.h"
#include "axonn/run/train/expert_balance.h"
#include "axonn/run/train/step.h"

namespace axonn {

namespace {

/// Has CrossEntropy add the z-loss of the output logits.
class OutputZTerm final : public LossTerm {
 public:
  explicit OutputZTerm(double weight) : weight_(static_cast<float>(weight)) {}

  std::int64_t count() const override { return 1; }
  void begin_pass(Context& ctx, const Rows&, const View& sums) override {
    ctx.attach(std::make_shared<OutputZLoss>(OutputZLoss{weight_, sums}));
  }
  /// The mean squared log-sum-exp of the output logits, without its weight.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override {
    return {{.name = "output_z_loss", .value = sums[0] / static_cast<double>(input.tokens)}};
  }

 private:
  float weight_;
};

/// Has the model predict further tokens.
class MtpTerm final : public LossTerm {
 public:
  MtpTerm(double weight, std::int64_t layers)
      : weight_(static_cast<float>(weight)), layers_(static_cast<double>(layers)) {}

  std::int64_t count() const override { return 1; }
  void begin_pass(Context& ctx, const Rows&, const View& sums) override {
    ctx.attach(std::make_shared<MtpLoss>(MtpLoss{weight_, sums}));
  }
  /// The mean of the losses of further tokens over the layers that predict them and over all
  /// targets of the next tokens, without its weight.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override {
    return {{.name = "mtp_loss", .value = sums[0] / (layers_ * static_cast<double>(input.tokens))}};
  }

 private:
  float weight_;
  double layers_;
};

}  // namespace

LossTerms make_loss_terms(const Model& model, const TrainingConfig& config) {
  LossTerms terms;
  if (const Routers routers = model.routers(); !routers.biases.empty())
    terms.push_back(std::make_unique<ExpertBalance>(routers, config.balance));
  if (model.mtp_layers() > 0)
    terms.push_back(std::make_unique<MtpTerm>(config.mtp_weight, model.mtp_layers()));
  if (config.z_loss > 0) terms.push_back(std::make_unique<OutputZTerm>(config.z_loss));
  return terms;
}

}  // namespace axonn
