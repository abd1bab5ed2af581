#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/dtype.h"

namespace axonn {

/// The operations and collectives of one rank in program order, with sizes but without times. A dry
/// run of a step records it; to predict time, a simulator replays it with a machine's costs. Plain
/// data.
struct Recording {
  struct Matrix {
    std::int64_t rows = 0, cols = 0;
    DType dtype = DType::f32;
    int passes = 1;  ///< how often its elements are read or written

    std::int64_t bytes() const { return passes * rows * cols * bytes_of(dtype); }
  };

  /// An operation on the compute stream.
  struct Compute {
    std::string operation;  ///< name of the function of Backend or Device
    OperationKind kind = OperationKind::rowwise;
    std::string layer;             ///< set by Backend::mark()
    std::vector<Matrix> operands;  ///< arguments that are not empty, in order
    std::int64_t count = 1;        ///< equal products, each with such operands
    double flops = 0;              ///< for products (of all) and attention (causal half); else 0
    bool a_transposed = false, b_transposed = false;  ///< for products

    /// Bytes that it reads and writes.
    std::int64_t bytes() const {
      std::int64_t sum = 0;
      for (const Matrix& operand : operands) sum += operand.bytes();
      return count * sum;
    }
  };

  /// The start of a collective, or of a transfer between memory and the rank's file of [offload]
  /// (kDisk, in bytes that are moved). It may run from here to its Wait.
  struct Start {
    std::string group;       ///< "x", "y", "z", "data", "world" or kDisk
    int ranks = 1;           ///< size of the group; of collectives always greater than 1
    std::string operation;   ///< "all_gather"
    std::string label;       ///< the layer; of a transfer "read" or "write"
    std::int64_t bytes = 0;  ///< of the larger buffer: size · n for gathers and scatters
  };
  static constexpr const char* kDisk = "disk";

  /// The compute stream waits for what was started.
  struct Wait {
    /// Index of its Start in `events`. An index after this Wait means that Start in the previous
    /// step: updated weights are gathered under the next step's forward pass.
    std::size_t started = 0;
  };

  using Event = std::variant<Compute, Start, Wait>;
  std::vector<Event> events;
  /// While recording: the number of Starts, whose numbers Waits hold; and whether only they are
  /// counted, and no events noted.
  std::size_t started = 0;
  bool paused = false;
};

/// Adds the Start to a recording, which must outlive the result and may be null. Waiting for the
/// result adds a Wait; it is the state of a Work.
std::shared_ptr<Work::State> record_start(Recording* recording, Recording::Start start);

}  // namespace axonn
