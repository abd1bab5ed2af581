#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/compute/tensor/device.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// One kind of work of a step: an operation on operands of one shape. Per step.
struct ProfileRow {
  std::string operation;  ///< "matmul", "layer_norm", "fill_zero", "wait for z all_gather"
  std::string shape;      ///< "bf16 NT 1024x2304x768 + bias", "1024x768 bf16"; may be empty
  OperationKind kind = OperationKind::rowwise;
  double calls = 0;
  double seconds = 0;
  double flops = 0;          ///< of products and attention (causal half); else 0
  double bytes = 0;          ///< read and written
  double bound_seconds = 0;  ///< by the rates of the profile; 0: unknown

  double bound_share() const { return seconds > 0 ? bound_seconds / seconds : 0; }
};

/// Where the time of rank 0's steps goes.
struct StepProfile {
  std::string device;
  std::vector<ProfileRow> rows;  ///< those with the most time first
  double step_s = 0;             ///< of a step while its operations are timed
  double usual_step_s = 0;       ///< of a step while they are not, median
  double between_s = 0;          ///< of step_s, outside of all rows
  double product_rate = 0;       ///< flop/s of the best of a fixed list of products
  double memory_rate = 0;        ///< bytes/s of a sum of large arrays
};

/// Times every operation, copy and wait of some steps by Device::moment(). Collective; the result
/// is that of rank 0.
StepProfile profile_steps(const PreparedRun& run, Communicator& world,
                          const ProgressTarget& progress = {});

/// As a table: the rows that take the most time, at most `most`, and the sum of the others.
std::string to_text(const StepProfile& profile, std::size_t most = 40);
/// With the keys that docs/performance.md lists.
std::string to_json(const StepProfile& profile);

}  // namespace axonn
