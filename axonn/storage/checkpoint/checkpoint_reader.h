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
  static constexpr std::int64_t kAnyStep = INT64_MAX;
  /// path: a folder DIR/step-N, which must be intact; or DIR: the checkpoint that `latest` names,
  /// or the newest intact one before it, with a warning for each damaged one; only steps below
  /// `before` are considered. Collective: rank 0 reads the index and broadcasts it; if that fails,
  /// all ranks throw.
  CheckpointReader(Communicator& world, const std::string& path, std::int64_t before = kAnyStep);
  /// For a single rank.
  explicit CheckpointReader(const std::string& path);

  const std::string& folder() const { return folder_; }  ///< DIR/step-N
  std::int64_t step() const { return index_.step; }
  /// The location of all data, and the parameters and kinds.
  const CheckpointIndex& index() const { return index_; }
  /// Throws UsageError if the checkpoint has no such text.
  const std::string& text(const std::string& name) const;
  bool has_text(const std::string& name) const { return texts_.contains(name); }
  /// Whether the path was that of a folder of checkpoints.
  bool one_of_several() const { return one_of_several_; }
  /// One line for each newer checkpoint that was damaged and skipped.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string open(std::string path, std::int64_t before);
  std::string open_step(const std::string& folder);
  std::string open_newest(const std::string& folder, std::int64_t before);

  std::string folder_;
  CheckpointIndex index_;
  StateTexts texts_;
  std::vector<std::string> warnings_;
  bool one_of_several_ = false;
};

}  // namespace axonn
