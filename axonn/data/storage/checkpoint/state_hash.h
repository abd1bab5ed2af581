#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"

namespace axonn {

/// The values of one kind of one parameter, which a checkpoint holds whole: (rows, cols).
struct StateItem {
  std::string kind, parameter;
  std::int64_t rows = 0, cols = 0;
  bool operator==(const StateItem&) const = default;
};

/// The values of a checkpoint in an order that does not depend on the grid that wrote it.
class StateValues {
 public:
  /// The reader must outlive it.
  explicit StateValues(const CheckpointReader& reader);
  /// By kind, then by name.
  const std::vector<StateItem>& items() const { return items_; }
  /// Reads elements of an item, row after row, from `first` on. Throws UsageError as
  /// CheckpointSource does.
  void read(const StateItem& item, std::int64_t first, std::span<float> to);

 private:
  std::vector<StateItem> items_;
  CheckpointSource source_;
};

/// Hashes of a checkpoint's values, equal if and only if all their bits are: those of its grid, its
/// files, its config and its position in the data do not count.
struct StateHash {
  std::int64_t step = 0;
  /// SHA-256 of the values of each kind ("master": the weights): for each parameter, by name, its
  /// name, a zero byte, rows and columns (64 bits each) and its values row after row, as f32; all
  /// little-endian.
  std::map<std::string, std::string> kinds;
  /// SHA-256 of a line "KIND HASH\n" for each kind, in the order of their names.
  std::string state;
  bool operator==(const StateHash&) const = default;
};

/// Reads the checkpoint once, a few MiB at a time. Throws UsageError if it is damaged.
StateHash hash_of_state(const CheckpointReader& reader);

/// How the values of one kind differ between two checkpoints.
struct StateDifference {
  std::string kind;
  std::int64_t values = 0;     ///< of the kind
  std::int64_t different = 0;  ///< whose bits differ
  std::int64_t zeros = 0;      ///< of these, zeros of both signs
  double largest = 0;          ///< difference of two values; NaN if one of them is
};
/// For each kind. Throws UsageError if the two have other parameters or kinds, or are damaged.
std::vector<StateDifference> differences(const CheckpointReader& a, const CheckpointReader& b);

}  // namespace axonn
