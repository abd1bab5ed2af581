#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/storage/checkpoint/checkpoint_index.h"

namespace axonn {

/// An intact checkpoint: its index and texts. CheckpointSource reads its values.
///
/// Throws UsageError, naming the file, if something is missing, altered or cut short.
class CheckpointReader {
 public:
  /// path: a folder DIR/step-N, which must be intact; or DIR: the checkpoint that `latest` names,
  /// or the newest intact one before it, with a warning for each damaged one. Collective: rank 0
  /// reads the index and broadcasts it; if that fails, all ranks throw.
  CheckpointReader(Communicator& world, const std::string& path);
  /// For a single rank.
  explicit CheckpointReader(const std::string& path);

  const std::string& folder() const { return folder_; }  ///< DIR/step-N
  std::int64_t step() const { return index_.step; }
  /// The location of all data, and the parameters and kinds.
  const CheckpointIndex& index() const { return index_; }
  /// Throws UsageError if the checkpoint has no such text.
  const std::string& text(const std::string& name) const;
  bool has_text(const std::string& name) const { return texts_.contains(name); }
  /// One line for each newer checkpoint that was damaged and skipped.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string folder_;
  CheckpointIndex index_;
  StateTexts texts_;
  std::vector<std::string> warnings_;
};

}  // namespace axonn
