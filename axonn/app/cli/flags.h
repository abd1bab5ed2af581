#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "axonn/app/cli/command.h"
#include "axonn/run/config/config.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace axonn {

class Option;
class OptionList;
struct KeptForm;

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

/// Adds --drafts, of Generator::Options, and --draft, the path of the model that writes them. With
/// the latter alone `drafts` becomes 5.
void add_draft_flags(CLI::App& app, std::int64_t& drafts, std::string& model);

/// Adds --integer-products, of Generator::Options.
void add_integer_products_flag(CLI::App& app, bool& integer_products);
/// Adds --kv-cache, of Generator::Options and ScoreOptions.
void add_kv_cache_flag(CLI::App& app, KeptForm& form);

/// A word of a command, in quotes if a shell would take it apart.
std::string shell_word(const std::string& value);

/// The value of an option as its flag has it, quoted for a shell where it must be.
std::string flag_value(const Option& option);

/// Adds --overwrite.
void add_overwrite_flag(CLI::App& app, bool& overwrite);

}  // namespace axonn
