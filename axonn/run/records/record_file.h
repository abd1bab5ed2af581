#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// A file of a run that grows by a record each step, written without a buffer. Records that cannot
/// be written are kept in memory and written with the next one; if they become too many, the oldest
/// are dropped. So a run does not end because a log cannot be written.
class RecordFile {
 public:
  static constexpr std::size_t kMostWaiting = 16 << 20;

  /// Opens the file, or creates it, to write behind its first `kept` bytes; 0 empties it.
  /// most_waiting: bytes of records that are kept in memory. Throws UsageError if it cannot be
  /// opened.
  RecordFile(std::string path, std::int64_t kept, std::size_t most_waiting = kMostWaiting);

  /// Adds a record. Returns why it, or an earlier one, is not in the file, such as a full disk; ""
  /// if all are.
  std::string append(std::string_view record);
  /// Tries to write the records that are not in the file. Returns as append() does.
  std::string write_rest();

  const std::string& path() const { return path_; }
  /// Why the last record is not in the file; "" if it is.
  const std::string& fault() const { return fault_; }
  /// The number of records that were dropped so far.
  std::int64_t dropped() const { return dropped_; }
  /// New warnings for the user: once when records can no longer be written, and once when the
  /// first is dropped.
  std::vector<std::string> take_warnings();

 private:
  void note_written(std::size_t bytes);
  void drop_oldest();

  std::string path_;
  std::size_t most_waiting_;
  FileHandle file_;
  std::int64_t written_ = 0;       // bytes
  std::string rest_, fault_;       // rest_: not yet written
  std::deque<std::size_t> sizes_;  // of the records in rest_
  bool within_record_ = false;     // whether rest_ begins in one
  std::int64_t dropped_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace axonn
