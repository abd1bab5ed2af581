#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// A file mapped into memory, read-only. The file must not shrink meanwhile.
class MappedFile {
 public:
  /// Throws UsageError if the file does not exist, is not a regular file, or cannot be read.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::string_view text() const { return text_; }

 private:
  std::string path_;
  std::string_view text_;
};

}  // namespace axonn
