#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/base/files.h"
#include "axonn/storage/checkpoint/checkpoint_plan.h"

namespace axonn {

/// Copies runs of a checkpoint's files to memory and verifies them. The first run in a piece of
/// kPieceBytes reads and verifies the whole piece. Later runs in that piece are copied from memory
/// if no other piece was verified since, and else read alone. Runs may come in any order; sorted by
/// file and offset is fastest.
class PieceReader {
 public:
  /// Keeps references to both. Holds one piece, and a staging buffer for device memory.
  PieceReader(const CheckpointIndex& index, const std::string& folder);

  /// Throws UsageError with the file, and with the parameter if the data is altered.
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
