#pragma once

#include <memory>
#include <optional>

#include "axonn/app/cli/flags.h"
#include "axonn/run/config/config_options.h"
#include "axonn/use/memorize/config.h"

namespace axonn {

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

}  // namespace axonn
