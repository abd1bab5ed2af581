#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Where the files of a checkpoint are that lie on several nodes.
struct FilePlaces {
  Communicator* world = nullptr;      ///< the ranks of these nodes
  std::vector<std::string> paths;     ///< by file; "" if it is not on this rank's node
  std::vector<std::int32_t> holders;  ///< by file: a rank on whose node it is
};

/// Reads a piece of kPieceBytes, or the shorter last one. Throws UsageError with the bytes, and the
/// parameter if it is known, unless it matches its checksum.
void read_piece(const InputFile& file, const StoredFile& stored, std::int64_t piece,
                std::vector<std::byte>& to, const std::string& parameter = {});

/// The bytes of a checkpoint's files, of which a whole piece is read and verified at the first use
/// of a part. Holds one or two pieces.
class StoredPieces {
 public:
  virtual ~StoredPieces() = default;
  StoredPieces(const StoredPieces&) = delete;
  StoredPieces& operator=(const StoredPieces&) = delete;

  /// Calls read(false), which may ask for bytes. If the files lie on several nodes, it is
  /// collective over them, and read(true) comes first: it asks for the same bytes in the same
  /// order, and gets zeros. Then all ranks throw the UsageError of one rank.
  virtual void during(const std::function<void(bool rehearsal)>& read) { read(false); }

  /// Bytes of one piece, until the next call. Throws UsageError, naming the file and the parameter,
  /// if they are altered.
  virtual std::span<const std::byte> bytes_at(std::int64_t file, std::int64_t at,
                                              std::int64_t count, const std::string& parameter) = 0;

  /// By this rank so far, also from other ranks.
  virtual std::int64_t bytes_read() const = 0;

 protected:
  StoredPieces() = default;
};

/// Of files that this rank can read. The index must outlive it.
std::unique_ptr<StoredPieces> pieces_of(const CheckpointIndex& index,
                                        std::vector<std::string> paths);
/// Of files on several nodes: what is not on this one is sent by their holders. Both must outlive
/// it.
std::unique_ptr<StoredPieces> pieces_of(const CheckpointIndex& index, const FilePlaces& places);

}  // namespace axonn
