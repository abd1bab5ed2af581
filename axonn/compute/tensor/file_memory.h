#pragma once

#include <cstdint>
#include <string>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// Host memory whose pages lie in a file without a name, for values that together do not fit the
/// machine's memory. The system reads a page when it is accessed and writes changed ones when
/// memory is short, so addresses and values stay whatever is done here. The file ends with the
/// process, however that ends.
class FileMemory {
 public:
  /// Makes the file, and its folder if that is missing. Throws UsageError, with the folder, if it
  /// cannot, or if files of that folder are in memory themselves (tmpfs).
  explicit FileMemory(std::string folder);
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  /// Bytes of a page of this system, to which sizes are rounded up.
  static std::int64_t page();
  static std::int64_t whole_pages(std::int64_t bytes) {
    return (bytes + page() - 1) / page() * page();
  }

  /// Zeros. Throws UsageError, with the folder and what it has free, if the disk has no room.
  void* allocate(std::int64_t bytes);
  void release(void* memory, std::int64_t bytes) noexcept;

  /// Begins to read a part of an allocation from the file. Does not wait.
  void read_ahead(const void* part, std::int64_t bytes) const noexcept;
  /// Takes the pages of a part from the process. The system writes those that were changed, and
  /// keeps all as long as nothing else needs their memory.
  void put_away(const void* part, std::int64_t bytes) const noexcept;

  /// Seconds in which so many bytes go to the disk and come back, past the system's cache. Throws
  /// as allocate() does.
  double time_transfers(std::int64_t bytes);

 private:
  std::string folder_;
  FileHandle file_;
  std::int64_t end_ = 0;  // of the file
};

}  // namespace axonn
