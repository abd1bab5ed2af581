#include "axonn/run/train/distillation_term.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/train/step.h"

namespace axonn {

namespace {

/// Another model's device, and its memory.
class SharedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 protected:
  void around(const OperationCall&, const std::function<void()>& run) override { run(); }
};

LanguageModel& language_model(Model& model, const char* key, const char* whose) {
  auto* const found = dynamic_cast<LanguageModel*>(&model);
  if (!found)
    refuse(key, ": ", whose, " is of a family of this program that computes its loss itself; this ",
           "needs the logits of a LanguageModel");
  return *found;
}

/// Throws UsageError unless the models read and write the same tokens.
void check_tokens(const Config& own, const Config& other, const Companion& companion,
                  const Tokenizer* tokenizer) {
  const auto& [path, key] = companion;
  if (own.model.vocab != other.model.vocab)
    refuse(key, " = \"", path, "\" has a vocabulary of ", other.model.vocab,
           " tokens, and the model one of ", own.model.vocab, "; it needs the same tokens");
  if (!tokenizer || other.data.tokenizer.empty()) return;
  const auto others = make_tokenizer(other.data.tokenizer);
  AXONN_CHECK(others, "no tokenizer at ", other.data.tokenizer);
  const std::int64_t count = tokenizer->vocab_size();
  for (std::int64_t id = 0; id < count; ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (id >= others->vocab_size() || tokenizer->bytes_of(token) != others->bytes_of(token))
      refuse(key, " = \"", path, "\": its tokenizer has another token ", id,
             " than the model's; it needs the same tokens");
  }
}

}  // namespace

std::unique_ptr<LoadedModel> load_beside(LoadedModel& model, const Companion& companion,
                                         Communicator& world, const Tokenizer* tokenizer) {
  const auto& [path, key] = companion;
  if (path.empty()) return nullptr;
  if (!path_exists(path))
    refuse(key, ": there is no ", path, "; give a Hugging Face folder or a checkpoint");
  const PreparedRun run = model_beside(model.config(), path);
  check_tokens(model.config(), run.config(), companion, tokenizer);
  auto other = std::make_unique<LoadedModel>(
      run, world, std::make_unique<SharedBackend>(model.backend()),
      LoadedModel::Options{.trainable = false, .progress = model.progress()});
  language_model(model.model(), key, "the model");
  language_model(other->model(), key, "it");
  if (model.backend().device().keeps_values()) other->initialise();
  return other;
}

std::string DistillationTerm::graph_obstacle() const {
  return "a teacher's pass is not captured with the model's";
}

void DistillationTerm::begin_step(const StepInput& input) { passes_left_ = input.micro_batches; }

void DistillationTerm::begin_pass(Context& ctx, const Rows&, const View& sums) {
  state_.more_micro_batches = --passes_left_ > 0;
  state_.prefetcher.begin_pass();
  Context of_teacher = teacher_.context();
  of_teacher.own_scheduling().step = &state_;
  ctx.attach(std::make_shared<Teaching>(
      Teaching{.teacher = &language_model(teacher_.model(), "[distill] teacher", "it"),
               .ctx = std::move(of_teacher),
               .beta = static_cast<float>(config_.beta),
               .temperature = static_cast<float>(config_.temperature),
               .losses = sums,
               .top_k = config_.top_k}));
}

std::vector<Metric> DistillationTerm::metrics(std::span<const double> sums,
                                              const StepInput& input) const {
  const auto tokens = static_cast<double>(std::max<std::int64_t>(input.tokens, 1));
  return {{.name = "cross_entropy", .value = sums[0] / tokens},
          {.name = "teacher_cross_entropy", .value = sums[1] / tokens}};
}

}  // namespace axonn
