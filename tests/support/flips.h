#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/run/config/config.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn::testing_support {

/// What a bit flips in, while a rank trains.
enum class FlipIn {
  product,    ///< a result of a matrix product, before anything has read it
  operation,  ///< a result of any other operation, likewise
  value,      ///< an operand or a result of an operation, in memory after it, or before an update
  state,      ///< a weight, its compute copy, or the optimizer's state, in memory
  message,    ///< what a collective gives a rank
  file        ///< a file of a checkpoint, before it is read
};
inline constexpr std::string_view kFlipKinds[] = {"product", "operation", "value",
                                                  "state",   "message",   "file"};
inline constexpr int kFlips = std::size(kFlipKinds);

/// One flipped bit.
struct Flip {
  FlipIn in = FlipIn::product;
  int rank = 0;
  std::int64_t moment = 0;  ///< number of the event of its kind on that rank
  std::uint64_t seed = 0;   ///< of the byte and the bit
};

/// How a short training ended.
struct FlippedRun {
  std::string error;                 ///< the Error that ended it; "": none
  std::string hit;                   ///< what the bit was flipped in: "rank 1: matmul of h.0.attn"
  std::vector<std::string> remarks;  ///< of all ranks
  std::uint64_t digest = 0;          ///< of losses, norms, weights and state of all ranks
  /// (ranks, kFlips): how many events of each kind there were.
  std::vector<std::vector<std::int64_t>> events;
};

/// Trains for a few steps on ranks that are threads, with the checks that the config asks for, and
/// with the flip. The run ends with the comparison that precedes a checkpoint. With a flip in a
/// file, it goes on from a checkpoint before its last step.
FlippedRun run_with_flip(const PreparedRun& run, const Flip* flip);

/// What became of a flip.
enum class FlipEnd {
  none,      ///< it changed no bit of losses, weights and state
  repaired,  ///< it was set right, with a remark that names the rank
  found,     ///< an error that names rank or file ended the run
  other,     ///< another error ended it: values that are not finite, an index out of range
  missed     ///< losses, weights or state have other bits, and nothing was said
};
inline constexpr std::string_view kFlipEnds[] = {"no effect", "repaired", "found", "other error",
                                                 "missed"};

/// Compares a run with one without the flip.
FlipEnd end_of(const FlippedRun& run, const FlippedRun& clean, const Flip& flip);

/// A flip of this kind at a random moment of a random rank.
Flip random_flip(FlipIn in, const FlippedRun& clean, std::uint64_t seed);

/// Tiny trainings on two to four ranks: families, grids, types and rules.
struct FlipSetting {
  std::string name;
  Config config;
};
std::vector<FlipSetting> flip_settings();

}  // namespace axonn::testing_support
