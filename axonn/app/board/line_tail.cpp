#include "axonn/app/board/line_tail.h"

#include <algorithm>
#include <limits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

constexpr std::size_t kCompared = 256;  // bytes, about a line: two runs' lines differ in losses

/// Up to `most` bytes of the file, fewer at its end.
std::string bytes_at(int file, std::int64_t offset, std::size_t most) {
  std::string bytes(most, '\0');
  const ssize_t got = ::pread(file, bytes.data(), most, offset);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

/// Does not wait for the writer of a pipe of that name.
FileHandle opened(const std::string& path, struct stat& about) {
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0 || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  return file;
}

/// Passes the whole lines in `bytes`, which begin at `offset`. Returns the bytes of these lines.
std::size_t pass_lines(std::string_view bytes, std::int64_t offset, const LineTail::Take& take) {
  std::size_t at = 0;
  for (std::size_t end; (end = bytes.find('\n', at)) != bytes.npos; at = end + 1)
    take(bytes.substr(at, end - at), offset + static_cast<std::int64_t>(at));
  return at;
}

}  // namespace

bool LineTail::is_same(int file, std::uint64_t id, std::int64_t bytes) const {
  return id == id_ && bytes >= offset_ &&
         bytes_at(file, offset_ - std::ssize(before_), before_.size()) == before_;
}

bool LineTail::read(const std::function<void()>& begin_anew, const Take& take, double seconds) {
  const double end = now_seconds() + seconds;
  struct stat about {};
  const FileHandle file = opened(path_, about);
  written_ = file.get() < 0 ? 0 : about.st_mtime;
  if (offset_ > 0 && (file.get() < 0 || !is_same(file.get(), about.st_ino, about.st_size))) {
    begin_anew();
    offset_ = 0;
    before_.clear();
    within_long_ = false;
  }
  id_ = about.st_ino;
  while (file.get() >= 0) {
    const std::string bytes = bytes_at(file.get(), offset_, kMostLine);
    std::size_t done = 0;
    if (within_long_) {
      done = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
      within_long_ = done == bytes.size() && !bytes.ends_with('\n');
    }
    done += pass_lines(std::string_view(bytes).substr(done),
                       offset_ + static_cast<std::int64_t>(done), take);
    if (done == 0 && bytes.size() == kMostLine) {
      within_long_ = true;
      done = bytes.size();
    }
    if (done == 0) return false;
    offset_ += static_cast<std::int64_t>(done);
    before_ = bytes.substr(done - std::min(done, kCompared), std::min(done, kCompared));
    if (bytes.size() == kMostLine && now_seconds() > end) return true;
  }
  return false;
}

void read_lines(const std::string& path, std::int64_t from, std::int64_t to,
                const LineTail::Take& take) {
  struct stat about {};
  const FileHandle file = opened(path, about);
  while (file.get() >= 0 && from < to) {
    const std::size_t most = std::min<std::size_t>(LineTail::kMostLine, to - from);
    const std::string bytes = bytes_at(file.get(), from, most);
    std::size_t done = pass_lines(bytes, from, take);
    if (done == 0 && bytes.size() < LineTail::kMostLine) return;
    if (done == 0) done = bytes.size();
    from += static_cast<std::int64_t>(done);
  }
}

}  // namespace axonn
