#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/dtype.h"
#include "axonn/data/corpus/config.h"
#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/foundation/grid/sequence_cut.h"
#include "axonn/network/model/config.h"
#include "axonn/ranks/parallel/overlap.h"

namespace axonn {

class OptionList;

/// The update rules of this library; those that a program registers (optim/optimizer.h) follow.
enum class OptimizerKind { adamw, sgd, ademamix, muon, lion, schedule_free_adamw, adafactor };
/// The factor of Muon's updates: rms gives them AdamW's size, shape depends on out / in alone.
enum class MuonScale { rms, shape };
/// What Adafactor does with eps1 and weight decay: as its paper and transformers, or as PyTorch.
enum class AdafactorForm { paper, pytorch };
/// The coefficients of Muon's Newton-Schulz steps.
enum class MuonCoefficients { keller, schedule };
/// How an optimizer's running means are kept.
enum class MomentType { f32, bf16, eight_bits };
enum class ScheduleKind { constant, linear, cosine, wsd };
/// The curve of wsd's decay.
enum class DecayShape { linear, cosine, one_minus_sqrt };
enum class DeviceKind { automatic, cpu, cuda, hip };
inline constexpr std::array<std::string_view, 4> kDeviceKinds = {"auto", "cpu", "cuda", "hip"};
/// Whether the device is a GPU. This build may not support it.
constexpr bool is_gpu(DeviceKind device) {
  return device == DeviceKind::cuda || device == DeviceKind::hip;
}
enum class TransportKind { automatic, threads, mpi, nccl };
enum class CollectivesKind { automatic, flat, two_level };
enum class LogitsType { automatic, f32, bf16, f16 };
enum class RecomputeMode { none, light, full, values };

inline constexpr std::array<std::string_view, 4> kRecomputeModes = {"none", "light", "full",
                                                                    "values"};

/// The reaction of a resumed run if its samples or their order are not those of the checkpoint.
enum class ChangedData { refuse, restart };
inline constexpr std::array<std::string_view, 2> kChangedData = {"refuse", "restart"};

/// How gradients are kept within the range of f16; the keys loss_scale.fixed to
/// loss_scale.hysteresis of [training].
struct LossScaleConfig {
  double fixed = 0;             ///< the scale of all steps; 0: it is dynamic
  double initial = 65536;       ///< a dynamic scale's first; the defaults are those of PyTorch
  double min = 1;               ///< a dynamic scale that would fall below it ends the run
  std::int64_t window = 2000;   ///< steps without overflow after which it doubles
  std::int64_t hysteresis = 1;  ///< overflows after which it is halved
};

/// [training]. Keys without a default (seq_len, global_batch, and steps or epochs) are 0 until the
/// user sets them.
struct TrainingConfig {
  std::int64_t steps = 0;
  double epochs = 0;              ///< in place of steps, which the data then give; 0: steps are set
  std::int64_t seq_len = 0;       ///< T, tokens of one sequence
  std::int64_t global_batch = 0;  ///< sequences of one step, over all ranks
  /// Smaller batches at the start, see batch_stages(). At most one of the two is set.
  std::string batch_ramp = {};                 ///< "start increment sequences"
  std::vector<std::string> batch_stages = {};  ///< "batch sequences": the batch until that many
  std::int64_t micro_batch = 0;  ///< sequences one (z, data) coordinate computes at a time; 0: all
  DType dtype = DType::f32;      ///< f32, bf16 or f16
  LossScaleConfig loss_scale = {};
  LogitsType logits_dtype = LogitsType::automatic;  ///< in training
  std::int64_t seed = 1;
  double max_norm = 1;          ///< of the global gradient norm, which is clipped to it; 0: none
  double norm_type = 2;         ///< p of the norm that max_norm limits; infinity: the largest size
  double clip_value = 0;        ///< of a gradient's elements, which are clipped to it; 0: none
  std::int64_t eval_every = 0;  ///< steps; 0: only after the last one
  std::int64_t eval_batches = 0;  ///< global batches of one evaluation; 0: all validation data
  std::int64_t patience = 0;  ///< validations in a row without a lower loss that end it; 0: none do
  bool deterministic = true;
  bool cuda_graph = false;         ///< capture steps once as CUDA graphs, then launch them
  std::int64_t verify_every = 0;   ///< steps between searches for silent corruption; 0: none
  bool verify_state = true;        ///< checksums of weights and optimizer state between updates
  bool verify_products = false;    ///< compare sums of each product's result with its operands'
  bool verify_operations = false;  ///< compute each operation twice, and compare the results
  bool verify_values = false;      ///< checksums of what operations write, until it is read
  double skip_outliers =
      0;  ///< skip steps whose loss or norm exceeds this multiple of the mean; 0: off
  double skip_deviations = 0;    ///< likewise, by this many standard deviations; 0: off
  std::int64_t skip_most = 100;  ///< skipped steps in a row that end the run
  double mtp_weight = 0.3;       ///< of the losses of model.mtp_layers
  double z_loss = 0;             ///< weight of the squared log-sum-exp of the output logits
  GoldfishConfig goldfish = {};  ///< keys: goldfish.k, goldfish.h, goldfish.mask
  BalanceConfig balance = {};
  std::int64_t threads = 0;  ///< compute threads per rank; 0: cores / ranks sharing them
  bool bind_cores = true;    ///< bind each of the ranks that share cores to a part of them
  CudaAttention attention = CudaAttention::automatic;  ///< on NVIDIA GPUs
  bool tune = false;            ///< time matrix products before the first step, keep the fastest
  std::string tune_cache = {};  ///< file of tuning results; "": in the user's cache folder
};

/// [[stage]]: the training data from a step on, in place of those of [data].
struct StageConfig {
  std::string name = {};
  std::int64_t from_step = 1;                       ///< its first step, counted from 1
  std::vector<std::string> text = {}, tokens = {};  ///< as in DataConfig; one of the three is set
  std::int64_t synthetic = 0;
  std::int64_t seq_len = 0;  ///< divides training.seq_len; 0: training.seq_len
};

/// A loss of preferences; preference_loss() (preference.h) has the formulas and sources.
enum class PreferenceLoss {
  none,
  dpo,
  cdpo,
  ipo,
  hinge,
  robust,
  sigmoid_norm,
  exo_pair,
  nca_pair,
  bco_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  discopop,
  cpo,
  cpo_hinge,
  cpo_ipo,
  simpo,
  orpo,
  kto,
  apo_zero_unpaired,
  aot,
  aot_unpaired,
  ascent,
  npo
};

inline constexpr std::array<std::string_view, 25> kPreferenceLosses = {
    "none",         "dpo",          "cdpo",
    "ipo",          "hinge",        "robust",
    "sigmoid_norm", "exo_pair",     "nca_pair",
    "bco_pair",     "sppo_hard",    "apo_zero",
    "apo_down",     "discopop",     "cpo",
    "cpo_hinge",    "cpo_ipo",      "simpo",
    "orpo",         "kto",          "apo_zero_unpaired",
    "aot",          "aot_unpaired", "ascent",
    "npo"};

/// What replaces the logarithm of the ratio r of policy and reference in a loss of preferences, by
/// the f-divergence that it limits.
enum class Divergence {
  reverse_kl,
  forward_kl,       ///< 1 - 1/r
  js_divergence,    ///< log(2 r / (1 + r))
  alpha_divergence  ///< (r^(a - 1) - 1) / (a - 1)
};

inline constexpr std::array<std::string_view, 4> kDivergences = {
    "reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"};

/// [distill]: how a model learns from the distributions of another one.
struct DistillConfig {
  std::string teacher = {};  ///< a model's folder or checkpoints; empty: there is none
  double beta = 0.5;         ///< see ops::DivergenceTerms: 0 forward, 1 reverse divergence
  double temperature = 1;    ///< by which the logits of both are divided
  std::int64_t top_k = 0;    ///< see CrossEntropy::Teacher; 0: all tokens
  double lmbda =
      1;  ///< share of the generations of [rl] that the run writes; others are the data's
};

/// [preference]: how a model learns from answers of which some are better than others.
struct PreferenceConfig {
  PreferenceLoss loss = PreferenceLoss::none;
  std::vector<std::string> more_losses = {};  ///< names of losses that are added to it
  std::vector<double> loss_weights = {};      ///< of loss and more_losses; empty: 1 each
  double beta = 0.1;
  double label_smoothing = 0;  ///< share of the pairs that are taken to be the wrong way round
  double simpo_gamma = 0.5;    ///< SimPO: by how much the answers' rewards shall differ
  double cpo_alpha = 1;        ///< CPO, SimPO: weight of the loss of the chosen answers' tokens
  double alpha = 0;            ///< CPO, SimPO: of AlphaPO's rewards; 0: log-probabilities
  double desirable_weight = 1, undesirable_weight = 1;  ///< KTO: of good and of bad answers
  double sft_weight = 0;  ///< of the loss of the chosen answers' tokens, beside a reference
  double ld_alpha = 1;    ///< weight of the tokens beyond the length of the pair's shorter answer
  bool use_weighting = false;  ///< WPO: pairs are weighted by how likely the policy finds them
  Divergence f_divergence_type = Divergence::reverse_kl;
  double f_alpha_divergence_coef = 0.5;  ///< a of Divergence::alpha_divergence
  std::int64_t max_length = 0;           ///< tokens of prompt and answer that are kept; 0: all
  bool shared_prompt = false;            ///< whether a pair's prompt is computed once
  std::string reference = {};  ///< model that the loss compares with; empty: that at model.path
};

/// A loss of answers that have rewards; policy_loss() (policy_loss.h) has the formulas and sources.
enum class PolicyLoss {
  none,
  grpo,
  dapo,
  dr_grpo,
  bnpo,
  gspo,
  cispo,
  sapo,
  luspo,
  vespo,
  gmpo,
  rloo,
  distill  ///< the divergence of [distill], on answers of the run, whose rewards are only reported
};

inline constexpr std::array<std::string_view, 13> kPolicyLosses = {
    "none", "grpo",  "dapo",  "dr_grpo", "bnpo", "gspo",   "cispo",
    "sapo", "luspo", "vespo", "gmpo",    "rloo", "distill"};

/// Whether each token or each whole answer has a ratio of policies.
enum class RatioLevel { automatic, token, sequence };

inline constexpr std::array<std::string_view, 3> kRatioLevels = {"auto", "token", "sequence"};

/// Of which rewards the standard deviation divides an advantage.
enum class RewardScale { group, batch, none };

inline constexpr std::array<std::string_view, 3> kRewardScales = {"group", "batch", "none"};

/// How several rewards of an answer become an advantage: their weighted sum is normalised in its
/// group, or each of them is, and their weighted sum then over the generation (GDPO, 2601.05242).
enum class RewardSum { sum_then_normalize, normalize_then_sum };

inline constexpr std::array<std::string_view, 2> kRewardSums = {"sum_then_normalize",
                                                                "normalize_then_sum"};

/// What becomes of a token, or an answer, by the ratio of the policy that is trained to that which
/// wrote it, where the sampler's log-probabilities are known: it is weighted by the ratio, which is
/// cut (truncate) or dropped (mask) above rl.sampler_clip.
enum class SamplerCorrection { none, token_truncate, token_mask, sequence_truncate, sequence_mask };

inline constexpr std::array<std::string_view, 5> kSamplerCorrections = {
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"};

/// What the divergence from the reference is estimated by for a token, with g the logarithm of
/// reference / policy: e^g - 1 - g, -g, g² / 2 (Schulman, "Approximating KL divergence", 2020).
enum class KlEstimator { k3, k1, k2 };

inline constexpr std::array<std::string_view, 3> kKlEstimators = {"k3", "k1", "k2"};

/// [rl]: how a model learns from answers of its own that have rewards.
struct RlConfig {
  PolicyLoss loss = PolicyLoss::none;
  std::int64_t group = 8;  ///< answers of a prompt
  double clip = 0.2;       ///< how far below 1 a ratio may be
  double clip_high = 0;    ///< how far above; 0: clip
  double delta = 0;        ///< bound of ratios that are not clipped; 0: there is none
  double kl = -1;          ///< weight of the divergence from the reference; see kl_of()
  bool kl_correction = true;
  KlEstimator kl_estimator = KlEstimator::k3;  ///< of losses but rloo's
  RatioLevel importance_sampling_level = RatioLevel::automatic;
  RewardScale scale_rewards = RewardScale::group;
  std::vector<double> reward_weights = {};  ///< empty: 1 each
  RewardSum reward_sum = RewardSum::sum_then_normalize;
  double entropy_coef = 0;  ///< weight of the mean entropy of tokens, which is maximised
  /// Share of a step's tokens, those of the largest entropies, that have a loss.
  double top_entropy_quantile = 1;
  /// Answers with a negative advantage whose mean log(sampler / policy) is larger have no loss; 0:
  /// all have.
  double off_policy_mask = 0;
  double vespo_k_pos = 2, vespo_lambda_pos = 3;  ///< VESPO, of advantages of at least 0
  double vespo_k_neg = 3, vespo_lambda_neg = 2;  ///< and of others
  bool mask_truncated = false;                   ///< answers without an end have no loss
  SamplerCorrection sampler_correction = SamplerCorrection::sequence_mask;
  double sampler_clip = 3;
  double temperature = 1;                 ///< of sampling, and of all log-probabilities
  std::int64_t max_tokens = 512;          ///< most of an answer
  std::int64_t iterations = 1;            ///< how often a generation's answers are trained on
  std::int64_t steps_per_generation = 1;  ///< into which they are divided
  std::string reference = {};             ///< empty: the model at model.path
  std::vector<std::string> rewards = {};  ///< built in (make_verifier()), of answers that it writes
  std::string reward_program = {};        ///< a shell's command (RewardProgram); empty: none
  std::int64_t reward_workers = 1;
  double reward_timeout = 60;        ///< seconds, of an answer
  std::int64_t overlong_buffer = 0;  ///< last tokens of max_tokens, which reward overlong punishes
  std::int64_t sampling_attempts = 1;  ///< at groups whose rewards are not all equal
  bool hold_weights = true;  ///< while answers are written, weights are gathered over z once
  /// Answers that the run writes have the log-probabilities of the training pass, to the bit.
  bool batch_invariant = true;
};

/// [optimizer]
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 0;  ///< must be set
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  ///< of matrices only
  double ema_decay = 0;       ///< of the running averages of the weights; 0: there are none
  MomentType moments = MomentType::f32;
  double beta3 = 0.9999;  ///< AdEMAMix: decay rate of the slow mean of gradients
  double alpha = 8;       ///< AdEMAMix: weight of the slow mean
  std::int64_t alpha_warmup = 0, beta3_warmup = 0;  ///< AdEMAMix: steps; 0: none
  double momentum = 0.95;                           ///< Muon: of its matrices
  bool nesterov = true;
  MuonScale muon_scale = MuonScale::rms;
  MuonCoefficients muon_coefficients = MuonCoefficients::keller;
  std::int64_t muon_steps = 5;                 ///< Newton-Schulz steps
  double sgd_momentum = 0, sgd_dampening = 0;  ///< SGD
  bool sgd_nesterov = false;
  AdafactorForm adafactor_form = AdafactorForm::paper;
  double adafactor_beta1 = 0;  ///< Adafactor: decay rate of a mean of its steps; 0: there is none
  double beta2_decay = -0.8;  ///< Adafactor: the t-th mean square has 1 - t^beta2_decay of the last
  double eps1 = 1e-30, eps2 = 1e-3;  ///< Adafactor: of squares, of the size of weights
  double clip_threshold = 1;         ///< Adafactor: the largest RMS of a matrix's step
  bool scale_parameter = true, relative_step = true;

  /// Keys of registered rules, by "rule.key"; one that is missing has its default.
  OwnValues own_values = {};
  /// Such a value, as own<double>("signum.beta"). Throws as ModelConfig::own() does.
  template <typename T>
  const T& own(const std::string& key) const {
    return own_value_as<T>(own_values, key);
  }
};

/// [lr_scheduler]
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;                ///< of all steps, in place of warmup_steps; 0: none
  double min_lr = 0;                      ///< last value of linear, cosine and wsd
  std::int64_t decay_steps = 0;           ///< of wsd; 0: a tenth of the steps
  DecayShape decay = DecayShape::linear;  ///< of wsd
  /// In place of steps, sequences consumed before the step, if one of these is set.
  std::int64_t warmup_samples = 0, decay_samples = 0;
  std::int64_t total_samples = 0;  ///< where min_lr is reached; 0: the end of the run

  bool counts_samples() const {
    return warmup_samples > 0 || decay_samples > 0 || total_samples > 0;
  }
};

/// [parallelism]
struct ParallelismConfig {
  int x = 1, y = 1, z = 1, data = 1;
  int context = 1;  ///< neighbours along z that share sequences; divides z
  ContextLayout context_layout = ContextLayout::automatic;  ///< which positions each of them has
  int experts = 1;  ///< neighbours along z that share the experts of each layer; divides z
  std::string named_grid = {};  ///< "x,y,z,data" instead of those four, or "auto"; key: grid
  std::string machine =
      {};  ///< for an automatic grid and automatic collectives: name or file; "": this one
  DeviceKind device = DeviceKind::automatic;
  double peak_tflops = 0;  ///< advertised peak of one rank's device; 0: unknown
  TransportKind transport = TransportKind::automatic;
  CollectivesKind collectives = CollectivesKind::automatic;  ///< changes no sum
  std::int64_t collective_blocks = -1;                       ///< see CollectivePolicy::gpu_blocks
  bool spare_multiprocessors = false;  ///< products beside collectives leave theirs
  bool verify_messages = false;        ///< checksums, with transport mpi
  DType reduce_dtype = DType::f32;     ///< in which weight gradients are exchanged
  bool sequence_parallel = true;       ///< rows are also cut over x and y between products
  int chunks = 1;                      ///< pieces of a micro-batch that overlap one another
  KeepWeights keep_weights = KeepWeights::none;
  Overlap overlap = {};          ///< keys: overlap_input_gradients, overlap_data ...
  double timeout_seconds = 600;  ///< a collective may hang before the run ends

  /// The config must be resolved: the grid is not automatic.
  GridShape grid() const { return {x, y, z, data, context, experts}; }
  bool automatic() const { return named_grid == "auto"; }
  /// Sets the extents of the axes; context and experts stay.
  void set_grid(const GridShape& shape) {
    x = shape.x;
    y = shape.y;
    z = shape.z;
    data = shape.data;
  }
  bool operator==(const ParallelismConfig&) const = default;
};

/// [activation_checkpoint]
struct RecomputeConfig {
  RecomputeMode mode = RecomputeMode::none;
  /// The first `blocks` blocks recompute more: what the next mode says, or first_values.
  std::int64_t blocks = 0;
  std::vector<std::string> values = {}, first_values = {};  ///< of mode values
  std::int64_t budget = 0;      ///< bytes; 0: none, else the keys above follow from it
  std::int64_t peak_bytes = 0;  ///< of a step, as within_budget() found it; not a key
  bool keep_dispatch = false;   ///< keep the rows that experts got from other ranks
};

/// [offload]: what a rank keeps in a file instead of memory between its uses.
struct OffloadConfig {
  std::string dir = {};    ///< folder of the file, on a disk of the node; empty: nothing
  bool parameters = true;  ///< their compute copies
  bool gradients = true;
  bool optimizer = true;  ///< master weights, moments and averages

  /// Folder of the copy from which a checkpoint is written; empty: it is in memory.
  std::string copy_dir() const { return optimizer ? dir : ""; }
};

/// [checkpoint]
struct CheckpointConfig {
  std::int64_t every = 0;     ///< steps; 0: none by their number
  double every_minutes = 30;  ///< since the start or the last one; 0: none by time
  std::int64_t keep = 2;      ///< number of newest checkpoints that stay; 0: all
  double keep_factor = 0;     ///< of older ones, see steps_to_keep(); 0: none
  bool best = false;          ///< save after each lowest validation loss; the last one stays
  std::string resume = {};    ///< "", "auto" or a path
  ChangedData changed_data = ChangedData::refuse;
  bool async = true;             ///< written in the background
  double give_up_minutes = 120;  ///< how long a run goes on although checkpoints fail
  std::int64_t local_every = 0;  ///< steps between local checkpoints; 0: none
  std::string local_folder = "/dev/shm/axonn";  ///< of these, on each node
  std::int64_t local_node_ranks = 0;            ///< neighbouring ranks of a node; 0: of a host
};

/// [output]
struct OutputConfig {
  std::string dir = "out/run";
  bool overwrite = false;      ///< replace the run that dir holds
  std::int64_t log_every = 1;  ///< steps
  bool tensorboard = false;    ///< also write the steps as TensorBoard's events
  std::string trace = {};      ///< file for a timeline of three steps; "": none
};

/// [samples]: texts that the model writes while it is trained.
struct SamplesConfig {
  std::vector<std::string> prompts = {};  ///< empty: none are written
  bool chat = false;          ///< a prompt is a user's message, in the template of data.jsonl
  std::int64_t every = 0;     ///< steps; 0: with each validation
  std::int64_t tokens = 64;   ///< most of a text
  double temperature = 0;     ///< 0: always the likeliest token
  bool hold_weights = false;  ///< gathers weights over z once instead of for each token
};

/// A section that belongs to another part of the program, such as the memorization study, or to a
/// user's program, such as the hyperparameters of its model. It is parsed, printed and written to
/// config.toml like the sections of a Config.
struct FurtherSection {
  std::string name;
  /// Adds the section and its keys to a list. Owns their values; copies share them.
  std::function<void(OptionList&)> list;
  std::string unread = {};  ///< why a training does not read its keys; "": it does
};

/// The configuration of a run: one member per section of the TOML file, of the same name, and the
/// sections of other owners.
struct Config {
  ModelConfig model;
  DataConfig data;
  std::vector<StageConfig> stage;  ///< by from_step; empty: [data] holds for all steps
  TrainingConfig training;
  PreferenceConfig preference;
  RlConfig rl;
  DistillConfig distill;
  OptimizerConfig optimizer;
  ScheduleConfig lr_scheduler;
  ParallelismConfig parallelism;
  RecomputeConfig activation_checkpoint;
  OffloadConfig offload;
  CheckpointConfig checkpoint;
  OutputConfig output;
  SamplesConfig samples;
  std::vector<FurtherSection> further = {};
  std::string file = {};       ///< that it was read from; "": none
  OpenFiles model_files = {};  ///< see with_stored_model()
};

/// The config as it is in each stage: without stages, with its data and sequence length. Returns
/// the config alone if it has no stages. Batches remain those of the config.
std::vector<Config> stages_of(const Config& config);

/// The steps of the warm-up: lr_scheduler.warmup_steps, or the share of training.steps that
/// warmup_ratio is, rounded up.
std::int64_t warmup_steps(const Config& config);

}  // namespace axonn
