#include "axonn/foundation/base/atomic_text.h"

#include <span>
#include <utility>

#include <sys/stat.h>

namespace axonn {

AtomicText::AtomicText(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    device_.emplace(path);
  else
    atomic_.emplace(path);
}

void AtomicText::append(std::string_view text) {
  constexpr std::size_t kBuffered = 1 << 16;
  if (buffer_.size() + text.size() > kBuffered) write(std::exchange(buffer_, {}));
  if (text.size() > kBuffered)
    write(text);
  else
    buffer_ += text;
}

void AtomicText::commit() {
  write(buffer_);
  if (device_)
    device_->finish();
  else
    atomic_->commit();
}

void AtomicText::write(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  if (device_)
    device_->append(bytes);
  else
    atomic_->append(bytes);
}

}  // namespace axonn
