#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Whether something of this name is there. Never throws: what cannot be looked at is not there.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_plain_file(const std::string& path);

/// A file as memory, read-only. It must not be shortened while it is open.
class MappedFile {
 public:
  /// Errors: UsageError if the file does not exist, is not a plain file, or cannot be read.
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
