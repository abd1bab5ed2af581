#include "axonn/run/train/nonfinite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_list.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/train/state_blocks.h"
#include "axonn/run/train/watching_backend.h"

namespace axonn {

namespace {

constexpr const char* kBatchFile = "batch.json";

/// Returns NaN without its sign, which has no meaning.
double plain(double value) { return std::isnan(value) ? std::abs(value) : value; }

/// Looks for the first value that is NaN or infinite on this rank.
class NonfiniteSearch {
 public:
  explicit NonfiniteSearch(const Context& ctx) : ctx_(ctx), count_(ctx.zeros(1, 1, DType::i64)) {}

  bool found() const { return !location_.empty(); }
  std::int64_t when() const { return when_; }
  const std::string& location() const { return location_; }

  /// Notes where, as describe() says, if values has NaN or infinity and nothing was found before.
  /// when: the order of calls, the same on all ranks.
  template <typename Describe>
  void look(std::int64_t when, const View& values, const Describe& describe) {
    if (found() || values.count() == 0) return;
    if (values.dtype != DType::f32 && !is_half(values.dtype)) return;
    std::int64_t count = 0;
    ctx_.device().fill_zero(count_.view().data, sizeof count);
    ctx_.backend.run(ops::CountNonfinite{count_.view(), values});
    ctx_.device().copy_to_host(&count, count_.view().data, sizeof count);
    if (count == 0) return;
    when_ = when;
    location_ = describe();
  }

 private:
  Context ctx_;
  Tensor count_;
  std::int64_t when_ = std::numeric_limits<std::int64_t>::max();
  std::string location_;
};

std::string samples_text(const std::vector<MicroBatch>& batch, std::size_t micro) {
  const MicroBatch& one = batch.at(micro);
  return fmt::format("micro-batch {} of {}, samples {} to {}", micro + 1, batch.size(), one.first,
                     one.first + one.sequences - 1);
}

/// Where the rank that found one first found it, on all ranks; "" if none did.
std::string first_location(Communicator& world, const NonfiniteSearch& search) {
  std::vector<std::int64_t> all(world.size());
  std::int64_t mine = search.when();
  world.all_gather(buffer(std::span(all)), {&mine, 1, DType::i64}, "diagnosis").wait();
  const auto first = std::ranges::min_element(all);
  return broadcast_text(world, search.location(), static_cast<int>(first - all.begin()));
}

/// This rank's samples as JSON, if it is the one of its batch coordinate that reports them.
std::string samples_json(Training& training, std::int64_t step) {
  nlohmann::json samples = nlohmann::json::array();
  if (!training.model.grid().leads_batch_coordinate()) return samples.dump();
  const Sequences& sequences = *training.batches->source_of(step).sequences;
  const auto batch = training.batches->at(step);
  for (const MicroBatch& micro : batch->micro_batches)
    for (std::int64_t i = 0; i < std::min(micro.sequences, batch->end - micro.first); ++i) {
      const std::int64_t number = micro.first + i;
      const Sequence& rows = micro.rows;
      nlohmann::json sample{{"sample", number}, {"where", sequences.where(number)}};
      const auto add = [&](const char* key, const std::vector<std::int32_t>& all) {
        const std::int64_t length = std::ssize(all) / micro.sequences;
        const auto begin = all.begin() + i * length;
        sample[key] = std::vector<std::int32_t>(begin, begin + length);
      };
      add("ids", rows.ids);
      add("targets", rows.targets);
      add("positions", rows.positions);
      add("starts", rows.starts);
      if (!rows.branches.empty()) add("branches", rows.branches);
      samples.push_back(std::move(sample));
    }
  return samples.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The step in the batch file, for this rank. micro_batches are those of its batch coordinate.
struct StoredStep {
  StepInput input;
  std::vector<MicroBatch> micro_batches;
};

StoredStep stored_step(const LoadedModel& model, const std::string& text) try {
  const auto json = nlohmann::json::parse(text);
  const auto& samples = json.at("samples");
  const TrainingConfig& t = model.config().training;
  const std::int64_t size = std::ssize(samples);
  const auto stages = batch_stages(t);
  if (std::ranges::find(stages, size, &BatchStage::batch) == stages.end())
    refuse(kBatchFile, " has ", size, " samples, but training.global_batch is ", t.global_batch);
  const std::int64_t unit = t.micro_batch * model.grid().batch_coordinates(),
                     each = batch_share(size, unit) * t.micro_batch,
                     mine = model.grid().batch_coordinate() * each,
                     first = samples.front().at("sample");
  StoredStep stored;
  stored.input = {.step = json.at("step"),
                  .micro_batches = static_cast<int>(each / t.micro_batch),
                  .tokens = json.at("tokens"),
                  .loss_scale = json.value("loss_scale", 1.0),
                  .tokens_of = {}};
  set_clipping(stored.input, t);
  for (std::int64_t i = 0; i < each; ++i) {
    const auto& sample = samples[std::min(mine + i, size - 1)];
    if (i % t.micro_batch == 0)
      stored.micro_batches.push_back({.first = first + mine + i,
                                      .sequences = t.micro_batch,
                                      .may_pad = size % unit != 0,
                                      .rows = {}});
    const auto append = [&](const char* key, std::vector<std::int32_t>& to) {
      for (const auto& value : sample.at(key)) to.push_back(value);
    };
    Sequence& rows = stored.micro_batches.back().rows;
    append("ids", rows.ids);
    append("targets", rows.targets);
    if (mine + i >= size)  // padding
      std::fill(rows.targets.end() - std::ssize(sample.at("targets")), rows.targets.end(),
                kPaddingTarget);
    append("positions", rows.positions);
    append("starts", rows.starts);
    if (sample.contains("branches")) append("branches", rows.branches);
  }
  return stored;
} catch (const nlohmann::json::exception& error) {
  refuse(kBatchFile, " is not the batch of a step: ", error.what());
}

/// The end of the message about a step that is not finite.
std::string remedy(const std::string& origin, const StepResult& result,
                   const TrainingConfig& training) {
  if (!result.overflow)
    return origin.empty() ? "" : ". Lower optimizer.lr, or clip with training.max_norm";
  return concat(". The gradients overflow f16 ",
                training.loss_scale.fixed > 0
                    ? concat("with training.loss_scale.fixed = ", training.loss_scale.fixed,
                             " for training.skip_most steps in a row: leave it out")
                    : concat("at the smallest scale that training.loss_scale.min = ",
                             training.loss_scale.min, " allows: lower optimizer.lr"),
                ", or train with training.dtype bf16 or f32");
}

}  // namespace

std::string find_nonfinite(Training& training, StepInput input,
                           const std::vector<MicroBatch>& batch) {
  const LoadedModel& model = training.model;
  const std::string here = model.grid().describe();
  NonfiniteSearch search(model.context());
  for (const ParameterGroup* group : training.model.model().groups()) {
    if (group->quantization() != Quantization::none) continue;  // of finite values alone
    for (const auto& [spec, slice] : group->piece_slices())
      search.look(-1, group->piece_of_compute().col_range(slice.offset, slice.count()), [&] {
        return concat("in the weights of ", spec->name, ", before the step, on ", here);
      });
  }
  const bool learned = search.found();

  std::size_t passes = 0;
  Phase phase = Phase::forward;
  std::int64_t last = 0;
  input.on_phase = [&](Phase now) {
    phase = now;
    if (now == Phase::forward) ++passes;
  };
  WatchingBackend watch(model.backend(), [&](const WatchingBackend::Operation& operation) {
    last = operation.number;
    // The largest logit of a piece of the vocabulary that is all padding is minus infinity.
    if (learned || operation.name == ops::SoftmaxStats::kName) return;
    search.look(operation.number, operation.result, [&] {
      return fmt::format("in layer {}, operation {} ({}), on {}, {}", operation.layer,
                         operation.name, phase == Phase::forward ? "forward" : "backward", here,
                         samples_text(batch, passes - 1));
    });
  });
  training.step.repeat(model.context_on(watch), input);
  for (const ParameterGroup* group : training.optimizer.groups())
    search.look(last + 1, group->gradient(), [&] {
      return concat("in the sum of the gradients of block ", group->name(), ", on ", here);
    });
  return first_location(model.grid().world(), search);
}

void save_step(Training& training, const StepInput& input, const std::string& folder,
               StateTexts texts) {
  Communicator& world = training.model.grid().world();
  std::string samples;
  gather_texts(world, samples_json(training, input.step), [&](const std::string& some) {
    if (some.size() > 2)
      samples += (samples.empty() ? "" : ",\n") + some.substr(1, some.size() - 2);
  });
  texts[kBatchFile] =
      fmt::format("{{\"step\": {}, \"tokens\": {}, \"loss_scale\": {}, \"samples\": [\n{}]}}\n",
                  input.step, input.tokens, input.loss_scale, samples);
  std::vector<StateBlock> blocks = state_blocks(training.model, training.optimizer);
  for (StateBlock& block : blocks) {  // the weights with which the step computed
    std::erase_if(block.buffers, [&](const StateBuffer& each) {
      return std::ranges::none_of(training.optimizer.groups(), [&](const ParameterGroup* group) {
        return group->master().data == each.data;
      });
    });
    for (StateBuffer& buffer : block.buffers) buffer.kind = kWeightsKind;
  }
  std::erase_if(blocks, [](const StateBlock& block) { return block.buffers.empty(); });
  CheckpointSaver saver({.folder = folder, .keep = 1, .async = false});
  saver.begin(world, input.step, blocks, texts);
  saver.finish(world);
}

void stop_for_nonfinite(Training& training, const StepInput& input, const StepResult& result,
                        const std::string& dir, StateTexts texts) {
  const std::string origin =
      find_nonfinite(training, input, training.batches->at(input.step)->micro_batches);
  const std::string folder = concat(dir, '/', kNonfiniteStep, input.step + 1);
  const std::string fault = fault_of([&] { save_step(training, input, folder, std::move(texts)); });
  fail(Where::here(),
       fmt::format("step {}: the loss is {} and the gradient norm {}; ", input.step + 1,
                   plain(result.loss), plain(result.grad_norm)),
       origin.empty()
           ? "when the step was repeated, everything was finite: a fault of the hardware "
             "is likely, such as a flipped bit (training.verify_every looks for more)"
           : "it arose first " + origin,
       "; the parameters are those before this step. ",
       fault.empty() ? concat("axonn replay ", folder, " repeats the step")
                     : concat("The step could not be saved: ", fault),
       remedy(origin, result, training.model.config().training));
}

Config config_of_step(const std::string& folder) {
  const CheckpointReader reader(folder);
  if (!reader.has_text(kBatchFile))
    refuse(reader.folder(), " has no ", kBatchFile,
           ": it is not a step that axonn train saved when its loss was not finite");
  const Config stored = stored_config(reader);
  Config config = config_of_model(reader.folder());
  config.parallelism = stored.parallelism;
  config.optimizer = stored.optimizer;
  config.activation_checkpoint.budget = 0;  // the stored recomputation met it
  config.training.cuda_graph = false;       // a graph serves later steps only
  return config;
}

Replay replay(const PreparedRun& run, const std::string& folder, Communicator& world,
              const ProgressTarget& progress) {
  Training training(run, world, nullptr, {.data = false, .progress = progress});
  training.model.initialise();
  const CheckpointReader reader(world, folder);
  auto [input, micro_batches] = stored_step(training.model, reader.text(kBatchFile));
  std::int64_t tuned = 0;
  if (reader.has_text(kProductsFile))
    for (const TunedMatmul& product :
         parse_matmul_choices(reader.text(kProductsFile), concat(folder, '/', kProductsFile))
             .products)
      tuned += training.model.backend().set_matmul_way(product.shape, product.way) ? 1 : 0;
  const Context ctx = training.model.context();
  input.tokens_of = [&](int micro) { return make_tokens(ctx, micro_batches[micro]); };
  input.accept = [](double, double) { return false; };
  Replay report{
      .step = input.step + 1, .result = training.step.run(ctx, input), .tuned_products = tuned};
  report.result.loss = plain(report.result.loss);
  report.result.grad_norm = plain(report.result.grad_norm);
  if (!report.result.finite) report.origin = find_nonfinite(training, input, micro_batches);
  return report;
}

}  // namespace axonn
