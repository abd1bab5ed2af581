#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/comm/grid.h"
#include "axonn/data/config.h"
#include "axonn/data/goldfish.h"
#include "axonn/model/config.h"
#include "axonn/ops/cuda_options.h"
#include "axonn/tensor/dtype.h"

namespace axonn {

class OptionList;
class Origins;

enum class OptimizerKind { adamw, sgd };
enum class ScheduleKind { constant, linear, cosine, wsd };
enum class DeviceKind { automatic, cpu, cuda, hip };
/// Whether the device is a card, which this build may be for or not.
constexpr bool is_card(DeviceKind device) {
  return device == DeviceKind::cuda || device == DeviceKind::hip;
}
enum class TransportKind { automatic, threads, mpi, nccl };
enum class RecomputeMode { none, full };

inline constexpr std::array<std::string_view, 2> kComputeTypes = {"f32", "bf16"};
inline constexpr std::array<std::string_view, 2> kOptimizerKinds = {"adamw", "sgd"};
inline constexpr std::array<std::string_view, 4> kScheduleKinds = {"constant", "linear", "cosine",
                                                                   "wsd"};
inline constexpr std::array<std::string_view, 4> kDeviceKinds = {"auto", "cpu", "cuda", "hip"};
inline constexpr std::array<std::string_view, 4> kTransportKinds = {"auto", "threads", "mpi",
                                                                    "nccl"};
inline constexpr std::array<std::string_view, 3> kAttentionKinds = {"auto", "cudnn", "own"};
inline constexpr std::array<std::string_view, 2> kRecomputeModes = {"none", "full"};

/// [training]. What has no default (steps, seq_len, global_batch) is 0 until the user sets it.
struct TrainingConfig {
  std::int64_t steps = 0;
  std::int64_t seq_len = 0;       ///< T, tokens of one sequence
  std::int64_t global_batch = 0;  ///< sequences of one step, over all ranks
  std::int64_t micro_batch = 0;  ///< sequences one (z, data) coordinate computes at a time; 0: auto
  DType dtype = DType::f32;      ///< f32 or bf16
  std::int64_t seed = 1;
  double max_norm = 1;            ///< the global gradient norm is clipped to it; 0: not
  std::int64_t eval_every = 0;    ///< steps; 0: never
  std::int64_t eval_batches = 0;  ///< global batches of one evaluation; 0: the whole split
  bool deterministic = true;
  bool cuda_graph = false;  ///< steps are captured once and launched
  double skip_outliers =
      0;  ///< skip a step whose loss or norm is above this times the mean; 0: off
  GoldfishConfig goldfish = {};  ///< keys: goldfish.k, goldfish.h, goldfish.mask
  std::int64_t threads = 0;      ///< compute threads of one rank; 0: cores / ranks
  bool bind_cores = true;        ///< ranks that share a machine compute on cores of their own
  CudaAttention attention = CudaAttention::automatic;  ///< on NVIDIA's cards
  bool tune = false;            ///< time the products before the first step and keep the fastest
  std::string tune_cache = {};  ///< file of what was tuned; "": the user's cache

  bool operator==(const TrainingConfig&) const = default;
};

/// [optimizer]
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 0;  ///< must be set
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  ///< of matrices only

  bool operator==(const OptimizerConfig&) const = default;
};

/// [lr_scheduler]
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr = 0;             ///< what linear, cosine and wsd end at
  std::int64_t decay_steps = 0;  ///< of wsd; 0: a tenth of the steps

  bool operator==(const ScheduleConfig&) const = default;
};

/// [parallelism]
struct ParallelismConfig {
  int x = 1, y = 1, z = 1, data = 1;
  std::string named_grid = {};  ///< "x,y,z,data" instead of those four, or "auto"; key: grid
  std::string machine = {};     ///< of an automatic grid: name or file; "": probed
  DeviceKind device = DeviceKind::automatic;
  double peak_tflops = 0;  ///< advertised, of one rank's device; 0: not known
  TransportKind transport = TransportKind::automatic;
  DType reduce_dtype = DType::f32;       ///< what weight gradients travel in
  bool sequence_parallel = true;         ///< rows cut over x and y between products
  int chunks = 1;                        ///< pieces of a micro-batch whose sums overlap
  bool overlap_input_gradients = true;   ///< OAR
  bool overlap_weight_gradients = true;  ///< ORS
  bool overlap_weights = true;           ///< OAG
  bool overlap_data = true;              ///< gradient sums over data under the backward pass
  double timeout_seconds = 600;          ///< what a hung collective is given

  /// Of a resolved config, whose grid is not automatic.
  GridShape grid() const { return {x, y, z, data}; }
  bool automatic() const { return named_grid == "auto"; }
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

  bool operator==(const RecomputeConfig&) const = default;
};

/// [checkpoint]
struct CheckpointConfig {
  std::int64_t every = 0;   ///< steps; 0: only at the end
  std::int64_t keep = 2;    ///< the newest this many; 0: all
  std::string resume = {};  ///< "", "auto" or a path
  bool async = true;        ///< written in the background

  bool operator==(const CheckpointConfig&) const = default;
};

/// [output]
struct OutputConfig {
  std::string dir = "out";
  std::int64_t log_every = 1;  ///< steps
  std::string trace = {};      ///< a file for the timeline; "": none

  bool operator==(const OutputConfig&) const = default;
};

/// [memorize]: the study of what a model memorizes (axonn/study), which alone reads it.
struct MemorizeConfig {
  std::vector<std::string> documents = {};        ///< JSONL files; none: generated records
  std::int64_t bucket_size = 200;                 ///< documents
  std::vector<std::int64_t> epochs = {1, 4, 6};   ///< of the buckets, beside the control's 0
  std::int64_t suffix_tokens = 50;                ///< what is to be recited
  std::vector<std::int64_t> prompt_lengths = {};  ///< tokens, beside the whole document
  std::int64_t trials = 3;
  std::vector<std::string> losses = {"standard", "goldfish"};
  std::int64_t batch = 0;    ///< documents a (z, data) coordinate is asked for at a time; 0: auto
  bool hold_weights = true;  ///< gathered over z once while documents are asked for

  bool operator==(const MemorizeConfig&) const = default;
};

/// Everything a run is told: one member a section of the TOML file, of the same name.
struct Config {
  ModelConfig model;
  DataConfig data;
  TrainingConfig training;
  OptimizerConfig optimizer;
  ScheduleConfig lr_scheduler;
  ParallelismConfig parallelism;
  RecomputeConfig activation_checkpoint;
  CheckpointConfig checkpoint;
  OutputConfig output;
  MemorizeConfig memorize;
};

/// The one list of all keys (style: parse, help, print and docs all come from it). The list refers
/// to config, which must outlive it.
void list_options(Config& config, OptionList& list);

/// Errors: UsageError that names the keys and the remedy, where values are missing or contradict
/// one another. What a grid can cut is checked by the layers.
void validate(const Config& config);

/// The config with every "0: follows from others" filled in (kv_heads, ffn, positions,
/// micro_batch, decay_steps), and a grid that was named as x, y, z and data; vocab stays as it is,
/// since only the tokenizer knows. Call it after validate(); it keeps a run the same.
Config resolved(Config config);

/// A key that this run does not read, and why.
struct WithoutEffect {
  std::string key;  ///< "optimizer.beta1"
  std::string reason;
};
std::vector<WithoutEffect> keys_without_effect(const Config& config);

/// One line for each key that the user set and the run does not read.
std::vector<std::string> warnings(const Config& config, const Origins& origins);

/// Every value with its origin, as valid TOML: what --print-config shows.
std::string print_config(Config config, const Origins& origins);

/// The file that runs the same again to the bit: output.dir/config.toml. Keys that nobody set and
/// that have no effect are comments, so that they bring no warning the next time.
std::string config_toml(Config config, const Origins& origins);

/// docs/configuration.md.
std::string config_reference();

}  // namespace axonn
