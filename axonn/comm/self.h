#pragma once

#include <memory>
#include <string>

#include "axonn/comm/abort_flag.h"
#include "axonn/comm/communicator.h"

namespace axonn {

/// A group of one rank: a collective copies inp to out where they differ, and nothing else.
std::unique_ptr<Communicator> make_self();

/// The same as a part of a larger world, which it ends and with which it ends.
std::unique_ptr<Communicator> make_self(std::string name, std::shared_ptr<AbortFlag> flag);

}  // namespace axonn
