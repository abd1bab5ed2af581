#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "axonn/app/cli/command.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/config.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace axonn {

/// Parses a command's own flags. Returns false if it printed the help, so that the command is done.
/// Throws UsageError, naming the flag and the closest known ones, also of `list` if it is given.
bool parse_flags(CLI::App& app, Arguments arguments, const OptionList* list = nullptr);

/// For flags that count: whole numbers from `least` to 2^31 - 1, so that products of two fit.
CLI::Validator count_from(std::int64_t least);

/// For flags with a real number from `least` to `most`.
CLI::Validator number_from(double least, double most);

/// The enumerator with this name, one of `names`.
template <typename Enum, std::size_t n>
Enum value_of(const std::string& name, const std::array<std::string_view, n>& names) {
  return static_cast<Enum>(std::ranges::find(names, name) - names.begin());
}

/// A config, with all sections that the program knows, and the origin of each of its values.
struct LoadedConfig {
  std::shared_ptr<MemorizeConfig> memorize = std::make_shared<MemorizeConfig>();
  Config config{.further = {memorize_section(memorize)}};
  Origins origins;
};

/// Parses the arguments of a command that takes [CONFIG.toml or --config FILE] [--section.key value
/// ...] and its own flags. Returns nothing if it printed the help. A source of data in a flag
/// replaces the file's, with a note. Unset keys of adapters and output.dir get the defaults that
/// suit. Otherwise the config is as written: not yet validated or resolved. Throws UsageError.
std::optional<LoadedConfig> read_config(CLI::App& app, const Arguments& arguments);

/// Prints the warnings() about a config, once for all ranks.
void warn_about(const LoadedConfig& loaded);
/// Prints the notes of the files of a model and its adapters, once for all ranks.
void warn_about_files(const Config& config);

/// Adds a flag with the index of one of `names`, which parsing passes to `set`.
CLI::Option* add_choice_flag(CLI::App& app, const std::string& flag,
                             std::span<const std::string_view> names, std::function<void(int)> set,
                             const std::string& help);

/// Adds a flag with the name of an enumerator, which parsing stores.
template <typename Enum>
CLI::Option* add_choice_flag(CLI::App& app, const std::string& flag, Enum& value,
                             std::span<const std::string_view> names, const std::string& help) {
  return add_choice_flag(
      app, flag, names, [&value](int i) { value = static_cast<Enum>(i); }, help);
}

/// Adds --device, with parallelism.device's values, which parsing stores.
CLI::Option* add_device_flag(CLI::App& app, DeviceKind& device);

/// Flags of commands that run a model without training it.
struct ModelFlags {
  std::string model, adapter, tokenizer, grid = "1,1,1,1", dtype;
  std::string machine;  ///< whose links decide about collectives; "": unknown
  DeviceKind device = DeviceKind::automatic;
  int context = 1;   ///< neighbours along z that share sequences; only eval has a flag for it
  int experts = 1;   ///< neighbours along z that share experts
  bool ema = false;  ///< the averages of the checkpoint's weights in their place
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// The config of the model (config_of_model()), with the grid, the type and the device of the
/// flags. Prints one line for each damaged checkpoint that was skipped. Throws UsageError if there
/// is no such device.
Config open_model(const ModelFlags& flags);

/// The files that a command with these flags and the config of open_model() reads.
NamedPaths inputs_of(const ModelFlags& flags, const Config& config);

/// Adds --overwrite.
void add_overwrite_flag(CLI::App& app, bool& overwrite);

/// The tokenizer of the flags or of the model, which sets config's data.tokenizer, and its vocab if
/// that is 0; null if neither is known.
std::shared_ptr<const Tokenizer> tokenizer_of(Config& config, const ModelFlags& flags);

/// tokenizer_of(). Throws UsageError if there is none, or one with more tokens than the vocabulary.
std::shared_ptr<const Tokenizer> need_tokenizer(Config& config, const ModelFlags& flags);

/// Rank 0 prints the backend's new remarks (Backend::take_remarks()).
void print_remarks(Backend& backend, const Communicator& world);

/// Runs body once per rank of the config's grid, with the parameters loaded. Rank 0 prints the
/// backend's remarks.
void with_model(const Config& config, const std::function<void(LoadedModel&)>& body);

/// Standard error, for the progress of ranks started for config. Not redrawn under a launcher,
/// where a rank may see a terminal even if the output is a file.
ProgressTarget progress_of(const Config& config);

}  // namespace axonn
