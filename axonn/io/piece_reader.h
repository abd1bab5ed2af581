#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/io/checkpoint_plan.h"
#include "axonn/io/files.h"

namespace axonn {

/// Reads runs of a checkpoint's files and hands out verified bytes. What is read first of a piece
/// of kPieceBytes has all of it read and verified; later runs in it are read alone, unless it was
/// the last piece: runs may come in any order, best in that of the files and of their bytes.
class PieceReader {
 public:
  /// Keeps references to both. Holds one piece, and for a device's memory what is on
  /// its way.
  PieceReader(const CheckpointIndex& index, const std::string& folder);

  /// Errors: UsageError that names the file, and the parameter where it is altered.
  void copy(const ReadRun& run);

  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  const StoredFile& file_of(const ReadRun& run) const;
  void open(const ReadRun& run);
  std::span<std::byte> staged(std::int64_t bytes);
  std::span<std::byte> read(std::int64_t at, std::span<std::byte> out);
  void verify(const ReadRun& run, std::int64_t piece);

  const CheckpointIndex& index_;
  const std::string& folder_;
  std::vector<std::byte> piece_, staged_;
  std::int64_t piece_at_ = -1, file_at_ = -1, bytes_read_ = 0;
  std::vector<std::vector<bool>> verified_;  // by file and piece
  std::optional<InputFile> file_;
};

}  // namespace axonn
