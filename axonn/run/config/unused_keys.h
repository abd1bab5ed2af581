#pragma once

#include <string>
#include <utility>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// Keys, each with a reason.
using KeyReasons = std::vector<std::pair<std::string, std::string>>;

/// The keys that a run with this config does not read, and why.
KeyReasons unused_keys(const Config& config);

}  // namespace axonn
