#include "axonn/run/train/training.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/run_text.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/optim/learning_rate.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/train/data_stages.h"
#include "axonn/run/train/distillation_term.h"
#include "axonn/run/train/loss_term.h"
#include "axonn/run/train/policy_term.h"
#include "axonn/run/train/preference_term.h"
#include "axonn/run/train/resume.h"
#include "axonn/run/train/state_blocks.h"

namespace axonn {

namespace {

using Corpora = std::vector<std::shared_ptr<const Corpus>>;

Corpora open_data(const Config& config, Communicator& world, const TrainingOptions& options) {
  if (!options.data) return {};
  const bool first = world.rank() == 0;
  ProgressLine line(first ? options.progress : ProgressTarget{}, kTokenizing);
  const CorpusOptions corpus_options{.cache = {.folder = options.cache_folder, .makes = first},
                                     .vocab = config.model.vocab,
                                     .seed = static_cast<std::uint64_t>(config.training.seed),
                                     .report = [&](const TokenizeProgress& made) {
                                       world.note_progress();
                                       line(made.bytes, made.total_bytes);
                                     }};
  // Rank 0 tokenises into the cache first; the other ranks then find it there.
  Corpora corpora;
  if (first) corpora = open_stages(config, corpus_options);
  world.barrier("open data");
  return first ? corpora : open_stages(config, corpus_options);
}

BatchOptions batch_options(const LoadedModel& model) {
  const TrainingConfig& t = model.config().training;
  return {.seq_len = t.seq_len,
          .global_batch = t.global_batch,
          .stages = batch_stages(t),
          .micro_batch = t.micro_batch,
          .further = static_cast<int>(model.config().model.mtp_layers),
          .coordinate = model.grid().batch_coordinate(),
          .coordinates = model.grid().batch_coordinates()};
}

std::unique_ptr<Batches> validation_batches(const LoadedModel& model, const Corpus& corpus) {
  const TrainingConfig& t = model.config().training;
  std::shared_ptr<const Sequences> sequences =
      validation_sequences(corpus, t.seq_len, model.config().model.vocab);
  if (!sequences) return nullptr;
  BatchOptions options = batch_options(model);
  options.global_batch = t.micro_batch * options.coordinates;  // one micro-batch at a time
  options.stages.clear();
  options.further = 0;
  options.end = sequences->count();
  if (t.eval_batches > 0) options.end = std::min(options.end, t.eval_batches * t.global_batch);
  return std::make_unique<Batches>(std::move(sequences), SequenceMask(), options);
}

/// Throws UsageError on all ranks if no target of these batches counts. Collective; reads up to the
/// first one that does.
void refuse_without_targets(Batches& batches, const Grid& grid) {
  if (!batches.counts_by_reading()) return;  // all targets count
  for (std::int64_t n = 0; n < batches.steps(); ++n) {
    double counted =
        grid.leads_batch_coordinate() ? static_cast<double>(batches.at(n)->counted) : 0;
    grid.world().all_reduce(buffer(std::span(&counted, 1)), "validation targets").wait();
    if (counted > 0) return;
  }
  refuse("[data] validation: no target of the validation data counts, such as a word of an ",
         "assistant, so they have no loss; name other data or a larger fraction, or set it to 0");
}

const PreparedRun& trainable(const PreparedRun& run) {
  AXONN_CHECK(
      run->training.micro_batch > 0,
      "Training: training.micro_batch is 0, as in a run that only loads a model; prepare it "
      "with prepared(config)");
  return run;
}

std::unique_ptr<Optimizer> rule_of(const OptimizerConfig& config, const TrainingOptions& options) {
  AXONN_CHECK(options.make_optimizer, "Training: TrainingOptions::make_optimizer is empty");
  return options.make_optimizer(config);
}

/// Empty unless the corpus has answers.
AnswerTables tables_of_answers(const PreparedRun& run, Communicator& world,
                               const std::vector<std::shared_ptr<const Corpus>>& corpora,
                               const TrainingOptions& options) {
  if (corpora.empty() || run->preference.loss == PreferenceLoss::none) return {};
  AXONN_CHECK(!options.make_sequences,
              "Training: [preference] loss wants the answers of [data] jsonl, which "
              "TrainingOptions::make_sequences replaces; leave one of them out");
  return answer_tables(run, world, *corpora.front(), options.cache_folder);
}

/// The answers of a loss of [rl], recorded or to be written; none without data.
PolicyData policy_data(LoadedModel& model, LoadedModel* reference, const Corpora& corpora,
                       const TrainingOptions& options) {
  const Config& config = model.config();
  PolicyData data{.reference = reference};
  if (config.rl.loss == PolicyLoss::none || corpora.empty()) return data;
  AXONN_CHECK(!options.make_sequences,
              "Training: [rl] loss wants the answers of [data] jsonl, which "
              "TrainingOptions::make_sequences replaces; leave one of them out");
  const std::shared_ptr<const Corpus>& corpus = corpora.front();
  data.file = corpus->rollouts;
  if (data.file && data.file->reward_names.empty() && weighs_answers(config.rl))
    refuse("[rl] loss = ", kPolicyLosses[static_cast<std::size_t>(config.rl.loss)],
           " needs rewards, and the answers of data.jsonl have none; give them some, or set ",
           "rl.loss = \"distill\"");
  if (corpus->prompts) {
    if (!options.make_sampler)
      refuse("[data] jsonl: its lines are prompts, to which 'axonn train' and 'axonn reinforce' ",
             "write answers; here give recorded answers, such as those in a run's folder ",
             kRolloutsFolder);
    data.sampler = options.make_sampler(model, corpus);
    data.file = data.written = std::make_shared<RolloutFile>();
    data.batch_invariant = weighs_answers(config.rl) && config.rl.batch_invariant &&
                           model.backend().set_batch_invariant(true);
  }
  data.sequences = std::make_shared<const RolloutSequences>(data.file, config.training.seq_len,
                                                            generation_steps(config, *corpus));
  return data;
}

/// The sequences of the loss's answers, if there is one, or those that the options make.
SequencesMaker sequences_maker(const PolicyTerm* policy, const TrainingOptions& options) {
  if (!policy || !policy->data().file) return options.make_sequences;
  return [data = policy->data()](const Config& config, const Corpus&) {
    return std::make_unique<const RolloutSequences>(data.file, config.training.seq_len,
                                                    data.sequences->steps());
  };
}

/// What the models that a run compares its own with are called.
Companion teacher_of(const Config& config) { return {config.distill.teacher, "[distill] teacher"}; }
Companion reference_of(const Config& config) {
  if (config.rl.loss == PolicyLoss::none || kl_of(config.rl) == 0) return {"", ""};
  return {config.rl.reference.empty() ? config.model.path : config.rl.reference, "[rl] reference"};
}

const Tokenizer* tokenizer_of(const Corpora& corpora) {
  return corpora.empty() ? nullptr : corpora.front()->tokenizer.get();
}

LossTerms loss_terms(LoadedModel& model, LoadedModel* teacher, PolicyData policy,
                     std::shared_ptr<const AnswerTable> answers) {
  const Config& config = model.config();
  LossTerms terms = make_loss_terms(model.model(), config.training);
  if (config.preference.loss != PreferenceLoss::none)
    terms.push_back(std::make_unique<PreferenceTerm>(config.preference, std::move(answers)));
  if (config.rl.loss != PolicyLoss::none)
    terms.push_back(std::make_unique<PolicyTerm>(config.rl, std::move(policy)));
  if (teacher) terms.push_back(std::make_unique<DistillationTerm>(*teacher, config.distill));
  return terms;
}

/// Whether the rank keeps checksums of its state, which a GPU does not compute yet.
bool keeps_sums(const Config& config, const Device& device) {
  const bool on_host = device.memory() == Memory::host && !device.captures();
  return config.training.verify_state && on_host;
}

OptimizerState::Options state_options(LoadedModel& model) {
  const Config& config = model.config();
  OptimizerState::Options options{.ema_decay = config.optimizer.ema_decay,
                                  .moments = config.optimizer.moments,
                                  .seed = static_cast<std::uint64_t>(config.training.seed),
                                  .sums = keeps_sums(config, model.backend().device())};
  for (ParameterGroup* group : model.model().groups())
    if (group->frozen()) options.frozen.push_back(group);
  return options;
}

}  // namespace

Training::Training(const PreparedRun& run, Communicator& world, std::unique_ptr<Backend> backend,
                   const TrainingOptions& options)
    : corpora(open_data(trainable(run).config(), world, options)),
      answers(std::make_shared<AnswerTables>(tables_of_answers(run, world, corpora, options))),
      model(run, world, std::move(backend), {.progress = options.progress}),
      teacher(load_beside(model, teacher_of(model.config()), world, tokenizer_of(corpora))),
      reference(load_beside(model, reference_of(model.config()), world, tokenizer_of(corpora))),
      optimizer(model.trained(), rule_of(optimizer_of(model.config()), options),
                state_options(model)),
      step(model.model(), optimizer,
           loss_terms(model, teacher.get(), policy_data(model, reference.get(), corpora, options),
                      answers->training),
           LossScale(model.config().training)),
      rollouts_folder_(options.rollouts_folder) {
  if (options.data) {
    const auto* policy = step.term<PolicyTerm>();
    BatchOptions steps = batch_options(model);
    if (policy && policy->data().sampler) steps.ahead = 0;  // its answers are not yet written
    batches = std::make_unique<Batches>(
        stage_sources(model.config(), corpora, sequences_maker(policy, options)), steps);
    validation = validation_batches(model, *corpora.front());
    if (validation) refuse_without_targets(*validation, model.grid());
    if (answers->validation)
      held_out_ = std::make_unique<PreferenceTerm>(model.config().preference, answers->validation);
    follow_epochs();
  }
  const Context ctx = model.context();
  optimizer.allocate(ctx);
  if (model.config().training.cuda_graph) step.use_graphs(ctx);
}

Training::~Training() = default;

void Training::follow_epochs() {
  if (model.config().training.epochs > 0)
    model.set_steps(steps_of_epochs(model.config(), *batches));
}

double Training::evaluate(const Context& ctx) {
  if (!held_out_) return step.evaluate(ctx, *validation);
  StepResult result = held_out_->evaluate(ctx, model.model(), *validation);
  validation_figures = std::move(result.metrics);
  return result.loss;
}

double Training::validate() {
  AXONN_CHECK(validation,
              "validate: there is no validation data; set data.validation to a fraction such as "
              "0.1 or to a file, or leave the call out where `validation` is null");
  const Context ctx = model.context();
  optimizer.exchange_evaluated(ctx);
  const double loss = evaluate(ctx);
  optimizer.exchange_evaluated(ctx);
  return loss;
}

double Training::validate_averages() {
  if (!validation) return validate();  // which throws, before any weight is exchanged
  const Context ctx = model.context();
  optimizer.exchange_averages(ctx);
  const double loss = evaluate(ctx);
  optimizer.exchange_averages(ctx);
  return loss;
}

std::int64_t Training::validation_windows() const {
  return validation ? validation->options().end : 0;
}

bool has_packed_data(const Config& config) {
  const DocumentMode documents = config.data.documents;
  return !config.data.jsonl.empty() || documents == DocumentMode::separate ||
         documents == DocumentMode::packed;
}

namespace {

/// Whether some micro-batch of the run may have sequences of padding.
bool may_pad(const Config& config) {
  return any_padded(batch_stages(config.training),
                    config.training.micro_batch * batch_coordinates(config.parallelism.grid()));
}

/// The memory of make_tokens() for whole sequences, on a device that keeps no values.
Tokens tokens_without_values(const Context& ctx, std::int64_t sequences, std::int64_t length,
                             const Config& config) {
  const auto ids = [&] { return ctx.empty(1, sequences * length, DType::i32); };
  Rows rows{sequences, length};
  const bool packed = has_packed_data(config);
  if (packed) {
    rows.position = ids();
    rows.start = ids();
  }
  if (packed || may_pad(config)) rows.counted = ids();
  if (config.preference.shared_prompt) rows.branches = ctx.empty(1, 3 * sequences, DType::i32);
  Tensor inputs = ids(), targets = ids();
  Tokens tokens{std::move(inputs), std::move(targets), std::move(rows)};
  for (std::int64_t i = 0; i < config.model.mtp_layers; ++i)
    tokens.further.push_back({ids(), ids()});
  return tokens;
}

/// A micro-batch of so many rows, in sequences of this length.
std::shared_ptr<const MicroBatch> made_up_batch(const Config& config, std::int64_t rows,
                                                std::int64_t length) {
  const auto batch = std::make_shared<MicroBatch>();
  batch->sequences = rows / length;
  batch->may_pad = may_pad(config);
  batch->further = static_cast<int>(config.model.mtp_layers);
  auto& [ids, targets, positions, starts, branches] = batch->rows;
  ids.resize(rows);
  // A prime, so that neighbours differ. Row i has the id i · 7919 modulo the vocab.
  const std::int64_t vocab = config.model.vocab, stride = 7919 % vocab;
  std::int64_t id = 0;
  for (std::int32_t& one : ids) {
    one = static_cast<std::int32_t>(id);
    id += stride;
    if (id >= vocab) id -= vocab;
  }
  targets = ids;
  if (has_packed_data(config)) {
    starts.resize(rows, 0);
    for (std::int64_t i = 0; i < rows; ++i)
      positions.push_back(static_cast<std::int32_t>(i % length));  // packed sequences
  }
  for (std::int64_t s = 0; config.preference.shared_prompt && s < batch->sequences; ++s)
    for (const std::int64_t row : {std::int64_t{0}, length, length})  // no second branch
      branches.push_back(static_cast<std::int32_t>(row));
  return batch;
}

}  // namespace

StepInput made_up_input(const LoadedModel& model) {
  const Config& config = model.config();
  const TrainingConfig& t = config.training;
  std::int64_t length = 0;
  for (const Config& stage : stages_of(config)) length = std::max(length, stage.training.seq_len);
  const std::int64_t rows = t.micro_batch * t.seq_len;
  StepInput input;
  input.micro_batches = static_cast<int>(micro_batch_count(config));
  input.tokens = input.all_targets = input.inputs = t.global_batch * t.seq_len;
  set_clipping(input, t);
  const bool whole = model.grid().shape().context == 1;
  if (whole && !model.context().device().keeps_values()) {
    input.tokens_of = [&model, rows, sequences = rows / length](int) {
      return tokens_without_values(model.context(), sequences, rows / sequences, model.config());
    };
    return input;
  }
  input.tokens_of = [&model, batch = made_up_batch(config, rows, length)](int) {
    return make_tokens(model.context(), *batch);
  };
  return input;
}

void Training::begin_count(std::int64_t n, const Batch* here) {
  const Grid& grid = model.grid();
  count_.work.wait();
  count_.step = n;
  count_.sums = {};
  if (here && grid.leads_batch_coordinate())
    count_.sums = {static_cast<double>(here->counted), static_cast<double>(here->targets),
                   static_cast<double>(here->inputs)};
  count_.work = grid.world().all_reduce(buffer(std::span<double>(count_.sums)), "counted targets");
}

void Training::count(std::int64_t n, const Batch& batch, StepInput& input) {
  if (count_.step != n) begin_count(n, &batch);
  count_.work.wait();
  input.tokens = static_cast<std::int64_t>(count_.sums[0]);
  input.all_targets = static_cast<std::int64_t>(count_.sums[1]);
  if (batches->counts_inputs_by_reading()) input.inputs = static_cast<std::int64_t>(count_.sums[2]);
  std::shared_ptr<const Batch> next;
  try {
    next = batches->at(n + 1);
  } catch (const std::exception&) {  // thrown again when that step is asked for, if it ever is
  }
  begin_count(n + 1, next.get());
}

std::shared_ptr<const Batch> Training::read(std::int64_t n) {
  auto* policy = step.term<PolicyTerm>();
  const bool begun =
      policy && policy->begin_generation(model.context(), model.model(), *batches, n);
  if (begun && policy->data().sampler && !rollouts_folder_.empty() &&
      model.grid().world().rank() == 0) {
    make_folders(rollouts_folder_);
    write_file_atomically(fmt::format("{}/step-{:06}.jsonl", rollouts_folder_, n + 1),
                          policy->lines(tokenizer_of(corpora)));
  }
  return batches->at(n);
}

std::vector<std::string> Training::take_warnings() {
  std::vector<std::string> all = optimizer.take_remarks();
  if (auto* policy = step.term<PolicyTerm>())
    std::ranges::move(policy->take_warnings(), std::back_inserter(all));
  return all;
}

void Training::add_generation(std::map<std::string, std::string>& texts) const {
  const auto* policy = step.term<PolicyTerm>();
  if (std::string state = policy ? policy->state() : ""; !state.empty())
    texts.emplace(kGenerationName, std::move(state));
}

void Training::continue_generation(const CheckpointReader& reader, std::int64_t n) {
  auto* policy = step.term<PolicyTerm>();
  if (policy && reader.has_text(kGenerationName))
    policy->set_state(reader.text(kGenerationName), n,
                      concat(reader.folder(), '/', kGenerationName));
}

StepInput Training::input(std::int64_t n) {
  AXONN_CHECK(batches,
              "input: there is no data, since TrainingOptions::data is false; give the "
              "step a StepInput of your own");
  AXONN_CHECK(n >= 0, "input: there is no step ", n, "; steps are counted from 0");
  const std::shared_ptr<const Batch> batch = read(n);
  StepInput input;
  input.step = n;
  input.micro_batches = static_cast<int>(std::ssize(batch->micro_batches));
  input.tokens = input.all_targets = batch->whole.targets;
  input.inputs = batch->whole.inputs;
  input.end_row = batch->end * (batches->options().seq_len / batches->source_of(n).in_one);
  if (batches->counts_by_reading()) count(n, *batch, input);
  if (corpora.front()->answers.any() && weighs_answers(model.config().rl))
    input.tokens = input.all_targets = batches->batch_of(n);  // each sequence is a unit of the loss
  input.lr = learning_rate(model.config(), n, batches->consumed_before(n));
  input.loss_scale = step.loss_scale().scale();
  set_clipping(input, model.config().training);
  input.tokens_of = [this, batch](int micro) {
    return make_tokens(model.context(), batch->micro_batches[micro]);
  };
  return input;
}

DataPosition Training::data_position(std::int64_t n) {
  if (!batches) return {};
  Communicator& world = model.grid().world();
  if (begin_.stages.empty()) {
    std::vector<std::string> fingerprints;
    for (const auto& corpus : corpora)
      fingerprints.push_back(world.rank() == 0 ? fingerprint(*corpus) : "");
    begin_ = data_begin(model.config(), corpora, batches->sources(),
                        broadcast_texts(world, std::move(fingerprints)));
  }
  DataPosition position = begin_;
  position.consumed = batches->consumed_before(n);
  for (std::size_t s = 0; s < begin_.stages.size(); ++s)
    position.stages[s].samples_done = batches->done(s, n);
  position.stages.insert(position.stages.end(), unlisted_.begin(), unlisted_.end());
  return position;
}

bool Training::continue_at(std::int64_t n, const DataPosition& saved,
                           const std::string& checkpoint) {
  if (!batches) return false;
  ContinuedData continued = continued_data(n, saved, data_position(0), batches->sources());
  refuse_changed_data(model.config(), checkpoint, continued);
  refuse_late_forgetting(model.config(), corpora, saved, continued, checkpoint);
  unlisted_.clear();
  for (const StagePosition& one : saved.stages)
    if (std::ranges::find(begin_.stages, one.name, &StagePosition::name) == begin_.stages.end())
      unlisted_.push_back(one);
  count_.work.wait();
  count_.step = -1;
  batches->begin_at(n, saved.consumed, std::move(continued.done));
  follow_epochs();  // another batch has other steps
  return !continued.difference.empty();
}

void save_checkpoint(Training& training, const std::string& folder, std::int64_t steps_done) {
  const LoadedModel& model = training.model;
  Communicator& world = model.grid().world();
  const TrainingConfig& t = model.config().training;
  for (const ParameterGroup* group : model.trained())
    AXONN_CHECK(group->has_values(), "save_checkpoint: ", group->name(),
                " has no values; call LoadedModel::initialise() or load_checkpoint() before");
  CheckpointSaver saver({.folder = folder, .keep = 0, .async = false});
  const DataPosition position = training.data_position(steps_done);
  const std::int64_t sequences = training.batches ? position.consumed : steps_done * t.global_batch;
  StateTexts texts = to_texts({.steps_done = steps_done,
                               .tokens_seen = sequences * t.seq_len,
                               .data = position,
                               .loss_scale = training.step.loss_scale().state(),
                               .optimizer = training.optimizer.numbers()},
                              stored_config_text(model.config(), Origins()));
  const auto tokenizer = training.corpora.empty() ? nullptr : training.corpora.front()->tokenizer;
  texts.emplace(kModelTextName, to_json(text_of_run(model.config().data, tokenizer)));
  training.add_generation(texts);
  saver.begin(world, steps_done, state_blocks(model, training.optimizer), std::move(texts),
              [&] { return training.optimizer.check_sums(); });
  saver.finish(world);
}

std::int64_t load_checkpoint(Training& training, const std::string& path) {
  const Resumed resumed = resume(training.model, training.optimizer, path);
  const RunState state = read_run_state(resumed.reader, training.model.config());
  training.step.set_loss_scale(state.loss_scale);
  training.continue_at(state.steps_done, state.data, resumed.reader.folder());
  training.continue_generation(resumed.reader, state.steps_done);
  return state.steps_done;
}

}  // namespace axonn
