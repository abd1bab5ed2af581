#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// write_file_atomically() for a text that is made piece by piece: the file is replaced when
/// commit() is called. Throws as that does.
class AtomicText {
 public:
  explicit AtomicText(const std::string& path);

  void append(std::string_view text);
  void commit();

 private:
  void write(std::string_view text);

  std::string buffer_;
  std::optional<AtomicFile> atomic_;
  std::optional<OutputFile> device_;  // or a pipe or a link, which is no file of its own
};

}  // namespace axonn
