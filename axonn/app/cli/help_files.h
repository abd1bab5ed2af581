#pragma once

#include <string>
#include <string_view>

#include "axonn/foundation/options/options.h"

namespace axonn {

/// The completions of commands, their flags, and the keys of `list` as --section.key, for "bash",
/// "zsh" or "fish". All else is completed as names of files. Made from the texts of --help.
std::string shell_completion(std::string_view shell, const OptionList& list);

/// The man page axonn(1), made from the texts of --help.
std::string man_page();

}  // namespace axonn
