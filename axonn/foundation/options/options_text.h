#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/options/options.h"

namespace axonn {

/// Sets the values of a TOML file. Relative paths in it are relative to the current directory, as
/// on the command line. Throws UsageError, with the location ("train.toml:7:1"), for an unreadable
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
/// the location.
std::vector<std::string> read_flags(const OptionList& list, std::span<const std::string> arguments,
                                    Origins& origins);

/// A comment beside a value in a written TOML file.
struct TomlNote {
  std::string comment;
  bool disabled = false;  ///< the whole line is commented out, so the value is not read back
};

/// Writes all values of all sections as a TOML file that reads back the same, with a note beside
/// each. Of the entries of repeated sections, writes only values that are not the default, without
/// notes.
std::string to_toml(const OptionList& list, const std::function<TomlNote(const Option&)>& note);

/// Writes all values as TOML, each with its origin as a comment.
std::string to_toml(const OptionList& list, const Origins& origins);

/// Writes all values as one line of JSON: {"model": {"family": "gpt", ...}, ...}.
std::string to_json(const OptionList& list);

/// Writes the reference of all keys in Markdown, one table per section. The configuration behind
/// the list must hold the defaults.
std::string to_markdown(const OptionList& list);

/// Help on a section ("training"), a key ("training.lr"), or a key name in all sections ("lr").
/// Throws UsageError, with suggestions, if nothing has that name.
std::string help_for(const OptionList& list, std::string_view word);

}  // namespace axonn
