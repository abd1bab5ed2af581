#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// A format of files that is not text.
struct FileFormat {
  std::string_view name;    ///< "a Parquet file"
  std::string_view remedy;  ///< how to make text of it; FILE stands for its path
};

/// The bytes of a file's beginning that format_of() wants.
inline constexpr std::size_t kFormatBytes = 512;

/// The format that a file has by its first kFormatBytes bytes, or all of a shorter one; null if it
/// may be text. Text in UTF-16 or UTF-32 is known by its byte order mark.
const FileFormat* format_of(std::string_view begin);

/// Throws UsageError that names the file, its format and the remedy if it is not text.
void refuse_format(const std::string& path, std::string_view begin);

/// What a user should know of a text before training: NUL bytes, or bytes that are not UTF-8 where
/// they are more than a hundredth of it; "" if it looks like text.
std::string note_of_bytes(std::string_view text);

}  // namespace axonn
