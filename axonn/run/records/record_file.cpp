#include "axonn/run/records/record_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"

namespace axonn {

RecordFile::RecordFile(std::string path, std::int64_t kept, std::size_t most_waiting)
    : path_(std::move(path)), most_waiting_(most_waiting), written_(kept) {
  const int truncates = kept > 0 ? 0 : O_TRUNC;
  file_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | truncates, 0666));
  if (file_.get() < 0)
    refuse("cannot write ", path_, ": ", cause_and_remedy(errno),
           "; check that output.dir is a folder with write permission");
}

std::string RecordFile::append(std::string_view record) {
  rest_ += record;
  sizes_.push_back(record.size());
  if (rest_.size() > most_waiting_) drop_oldest();
  const bool good = fault_.empty();
  write_rest();
  if (good && !fault_.empty())
    warnings_.push_back(fault_ + "; its lines are kept in memory until they can be written");
  return fault_;
}

std::string RecordFile::write_rest() {
  fault_.clear();
  while (!rest_.empty() && fault_.empty()) {
    const ssize_t put = ::pwrite(file_.get(), rest_.data(), rest_.size(), written_);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      fault_ = concat("cannot write ", path_, ": ", cause_and_remedy(put < 0 ? errno : ENOSPC));
    else
      note_written(static_cast<std::size_t>(put));
  }
  return fault_;
}

void RecordFile::note_written(std::size_t bytes) {
  written_ += static_cast<std::int64_t>(bytes);
  rest_.erase(0, bytes);
  while (bytes > 0 && bytes >= sizes_.front()) {
    bytes -= sizes_.front();
    sizes_.pop_front();
    within_record_ = false;
  }
  if (bytes == 0) return;
  sizes_.front() -= bytes;
  within_record_ = true;
}

/// Drops the older half of the records that wait, but not the rest of one that is partly written.
void RecordFile::drop_oldest() {
  if (dropped_ == 0)
    warnings_.push_back(
        concat("too many lines of ", path_, " wait to be written: the oldest are dropped"));
  const auto first = sizes_.begin() + (within_record_ ? 1 : 0);
  const std::size_t from = within_record_ ? sizes_.front() : 0;
  std::size_t bytes = 0;
  auto last = first;
  for (; last != sizes_.end() && bytes < rest_.size() / 2; ++last, ++dropped_) bytes += *last;
  sizes_.erase(first, last);
  rest_.erase(from, bytes);
}

std::vector<std::string> RecordFile::take_warnings() { return std::exchange(warnings_, {}); }

}  // namespace axonn
