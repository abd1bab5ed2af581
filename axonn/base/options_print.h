#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "axonn/base/options.h"

namespace axonn {

/// What a written TOML file says beside a value.
struct TomlNote {
  std::string comment;
  bool disabled = false;  ///< the line is a comment itself: the value is not read
};

/// Every value of every section as a TOML file that reads back the same, with a note beside each.
std::string to_toml(const OptionList& list, const std::function<TomlNote(const Option&)>& note);

/// Every value with its origin: valid TOML.
std::string to_toml(const OptionList& list, const Origins& origins);

/// Every value as one line of JSON: {"model": {"family": "gpt", ...}, ...}.
std::string to_json(const OptionList& list);

/// The reference of all keys in Markdown, a table a section. The list must be of a config that
/// holds the defaults.
std::string to_markdown(const OptionList& list);

/// What one option is: meaning, what it takes, default, and how to write it.
std::string help_of(const Option& option);

/// All options of a section, a line each.
std::string help_of(const OptionList::Section& section);

/// Help for a section ("training"), a key ("training.lr", "lr" wherever it stands).
/// Errors: UsageError with the likely meaning if there is none.
std::string help_for(const OptionList& list, std::string_view word);

}  // namespace axonn
