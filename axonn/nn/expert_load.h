#pragma once

namespace axonn {

/// How busy the experts of a model were in a step.
struct ExpertLoad {
  double balance = 0;   ///< the balance loss without its weight; see Routing
  double z = 0;         ///< the same of the z-loss
  double max_load = 0;  ///< rows of the busiest expert of a layer over the mean of that layer
};

}  // namespace axonn
