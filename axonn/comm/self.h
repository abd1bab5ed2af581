#pragma once

#include <memory>
#include <string>

#include "axonn/comm/abort_flag.h"
#include "axonn/comm/communicator.h"

namespace axonn {

/// Makes a group of one rank. A collective only copies inp to out if they differ.
std::unique_ptr<Communicator> make_self();

/// Makes a group of one rank within a larger world, with which it shares the abort flag.
std::unique_ptr<Communicator> make_self(std::string name, std::shared_ptr<AbortFlag> flag);

}  // namespace axonn
