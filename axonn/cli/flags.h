#pragma once

#include <memory>
#include <optional>
#include <string>

#include "axonn/cli/command.h"
#include "axonn/study/config.h"
#include "axonn/train/config_options.h"

namespace CLI {
class App;
}

namespace axonn {

/// Parses a command's own flags. Returns false if it printed the help, so that the command is done.
/// Throws UsageError, naming the flag and the closest known ones.
bool parse_flags(CLI::App& app, const Arguments& arguments);

/// A config, with all sections that the program knows, and the origin of each of its values.
struct LoadedConfig {
  std::shared_ptr<MemorizeConfig> memorize = std::make_shared<MemorizeConfig>();
  Config config{.further = {memorize_section(memorize)}};
  Origins origins;
  std::string file;  ///< the config file; "" if there is none
};

/// Parses the arguments of a command that takes [CONFIG.toml or --config FILE] [--section.key value
/// ...] and its own flags. Returns nothing if it printed the help. The config is as written: not
/// yet validated or resolved. Throws UsageError.
std::optional<LoadedConfig> read_config(CLI::App& app, const Arguments& arguments);

}  // namespace axonn
