#pragma once

#include "axonn/plan/planner/machine/machine.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// A machine's links, for the choice between collectives. A figure that is unknown keeps its
/// default.
CollectiveRates link_rates(const Machine& machine);

/// Makes the world choose its collectives by a machine's links; that of rank 0 counts. Collective.
void use_link_rates(Communicator& world, const ParallelismConfig& config, const Machine& machine);

}  // namespace axonn
