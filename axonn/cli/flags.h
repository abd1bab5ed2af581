#pragma once

#include <optional>
#include <string>

#include "axonn/base/options.h"
#include "axonn/cli/command.h"
#include "axonn/train/config.h"

namespace CLI {
class App;
}

namespace axonn {

/// Parses a command's own flags. False: help was asked for and is printed, so the command is done.
/// Errors: UsageError that names the flag and the likely meaning.
bool parse_flags(CLI::App& app, const Arguments& arguments);

/// A config and where each of its values came from.
struct LoadedConfig {
  Config config;
  Origins origins;
  std::string file;  ///< "" if the command line says it all
};

/// For commands that take [CONFIG.toml or --config FILE] [--section.key value ...] beside their own
/// flags: parses all of them. Nothing: help was asked for and is printed. The config is as it was
/// written: not yet validated or resolved. Errors: UsageError.
std::optional<LoadedConfig> read_config(CLI::App& app, const Arguments& arguments);

}  // namespace axonn
