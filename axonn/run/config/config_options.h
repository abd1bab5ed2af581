#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/options/options.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// Names of the types that models compute in, as keys take them: DType f32, bf16, f16.
inline constexpr std::string_view kComputeTypes[] = {"f32", "bf16", "f16"};
inline std::vector<std::string> compute_type_names() {
  return {std::begin(kComputeTypes), std::end(kComputeTypes)};
}
/// The type of one of these names.
inline DType compute_type(std::string_view name) {
  return static_cast<DType>(std::ranges::find(kComputeTypes, name) - kComputeTypes);
}

/// Names of CollectivesKind.
inline constexpr std::string_view kCollectivesKinds[] = {"auto", "flat", "two-level"};

/// Adds every key to list, with its description: parsing, help, printing and documents are made
/// from it. The list refers to config, which must outlive it.
void list_options(Config& config, OptionList& list);

/// Parts of list_options(): the sections [data], [training], [preference], [rl], [distill],
/// [optimizer] and [lr_scheduler], and an entry of [[stage]].
void list_data(DataConfig& data, OptionList& list);
void list_stage(StageConfig& stage, OptionList& list);
void list_training(TrainingConfig& training, OptionList& list);
void list_preference(PreferenceConfig& preference, OptionList& list);
void list_rl(RlConfig& rl, OptionList& list);
void list_distill(DistillConfig& distill, OptionList& list);
void list_optimizer(OptimizerConfig& optimizer, OptionList& list);
void list_schedule(ScheduleConfig& schedule, OptionList& list);

/// Sets the keys that adapters need otherwise than a whole model and that nobody has set: the
/// learning rate, the warm-up and the weight decay. Does nothing if the config trains no adapters.
void set_adapter_defaults(Config& config, Origins& origins);

/// Names output.dir, unless it is set, after the config's file: out/NAME for NAME.toml.
void name_output(Config& config, Origins& origins);

/// Returns one line for each key that the user set and the run does not read, and for a tokenizer
/// that nobody chose and that leaves most of the vocabulary unused.
std::vector<std::string> warnings(const Config& config, const Origins& origins);

/// Returns every value with its origin, as valid TOML, for --print-config.
std::string print_config(Config config, const Origins& origins);

/// The beginning of every config file that this program writes to repeat a run.
inline constexpr std::string_view kWrittenConfig = "# Repeats this ";

/// Returns output.dir/config.toml, which repeats the run to the bit. Keys that nobody set and that
/// have no effect are comments, so that they cause no warnings when the file is used.
std::string config_toml(Config config, const Origins& origins);

/// Returns the text of docs/configuration.md; config holds the defaults.
std::string config_reference(Config config);

}  // namespace axonn
