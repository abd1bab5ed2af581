#pragma once

#include <string>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

class Device;

/// "2 ranks on node7: AMD EPYC 9654, 96 cores": all cores of the host. device: of this rank; null:
/// its processor. Collective; the hosts are known on rank 0 alone.
std::string describe_machine(Communicator& world, const Device* device);

}  // namespace axonn
