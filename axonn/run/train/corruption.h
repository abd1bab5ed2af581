#pragma once

#include <cstdint>
#include <string>

#include "axonn/run/train/training.h"

namespace axonn {

/// Compares, to the bit, what several ranks hold or compute alike:
///
///   compared                                            along
///   a block's compute copy (S)                          data
///   this rank's piece of each parameter's master copy   x, y: those that do not cut the parameter
///   and optimizer state
///   every result of the forward pass of a micro-batch,  data and z; and with a repetition on the
///   that of the first (z, data) coordinate              same rank; not z if ranks share sequences
///
/// Returns "" if all agree, otherwise the rank that differs and in what:
///
///   "rank 5 (x 1, y 0, z 1, data 0) differs in exp_avg of h.1.ln_1.weight from other ranks on x"
///
/// or the ranks one of which must be wrong, if there are only two. Call it while the weights are
/// those of a step's begin, such as in StepInput::accept. Collective; the same on all ranks. Costs
/// two forward passes of a micro-batch, and reads their results and all parameters and state once.
///
/// A product that is wrong whenever it is computed shows only in comparison with other ranks: with
/// NCCL and more than two ranks on x or y, whose sums may differ from group to group, results are
/// only compared with the repetition.
std::string find_corruption(Training& training, std::int64_t step);

}  // namespace axonn
