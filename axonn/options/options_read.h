#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/options/options.h"

namespace axonn {

/// Sets the values of a TOML file. Relative paths in it are relative to the current directory, as
/// on the command line. Throws UsageError, with the place ("train.toml:7:1"), for an unreadable
/// file, invalid TOML, an unknown section or key (with a suggestion), and as Option::set() does.
void read_toml(const OptionList& list, const std::string& path, Origins& origins);

enum class UnknownSections { refuse, skip, skip_keys };  ///< skip_keys: unknown keys, too

/// Sets the values of a TOML text. `name` is the file name in messages. Throws as read_toml(), but
/// can skip unknown sections instead.
void read_toml_text(const OptionList& list, std::string_view text, const std::string& name,
                    Origins& origins, UnknownSections unknown = UnknownSections::refuse);

/// Sets the values of flags of the form `--section.key value` and `--section.key=value`, and
/// returns the other arguments in order. '-' and '_' are equivalent. A boolean flag without a value
/// means true. Repeated flags of a list append to it. Throws as read_toml() does, with the flag as
/// the place.
std::vector<std::string> read_flags(const OptionList& list, std::span<const std::string> arguments,
                                    Origins& origins);

}  // namespace axonn
