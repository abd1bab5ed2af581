#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "axonn/options/options.h"

namespace axonn {

// Repeated sections are not written.

/// A comment beside a value in a written TOML file.
struct TomlNote {
  std::string comment;
  bool disabled = false;  ///< the whole line is commented out, so the value is not read back
};

/// Writes all values of all sections as a TOML file that reads back the same, with a note beside
/// each.
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
