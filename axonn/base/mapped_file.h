#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Whether the path exists. Never throws: a path that cannot be accessed counts as missing.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);

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
