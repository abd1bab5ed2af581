#include "axonn/use/memorize/audit_part.h"

#include <filesystem>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/use/memorize/report_json.h"

namespace axonn {

AuditPart::AuditPart(std::string path, const std::string& audit) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) read_lines(audit);
  if (begins_.empty()) {
    write_file_atomically(path_, audit + "\n");
    begins_.push_back(std::ssize(audit) + 1);
  }
  std::filesystem::resize_file(path_, begins_.back());  // without a line that was cut short
}

/// Finds the lines of an earlier start of this audit; none, not even the first, of another one.
void AuditPart::read_lines(const std::string& audit) {
  std::ifstream file(path_, std::ios::binary);
  if (!file) refuse(path_, " cannot be read");
  std::string line;
  if (!std::getline(file, line) || file.eof() || line != audit) return;
  begins_.push_back(std::ssize(line) + 1);
  while (std::getline(file, line) && !file.eof()) {
    parse_recitation(line, concat(path_, " line ", begins_.size() + 1));
    begins_.push_back(begins_.back() + std::ssize(line) + 1);
  }
  counts_.recitations = std::ssize(begins_) - 1;
}

Recitation AuditPart::recitation(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < counts_.recitations, path_, ": recitation ", n, " of ",
              counts_.recitations);
  if (!reader_.is_open()) reader_.open(path_, std::ios::binary);
  std::string line(begins_[n + 1] - begins_[n], '\0');
  if (reader_.tellg() != begins_[n]) reader_.seekg(begins_[n]);
  reader_.read(line.data(), std::ssize(line));
  if (!reader_) refuse(path_, " has become shorter");
  return parse_recitation(line, concat(path_, " line ", n + 2));
}

void AuditPart::append(std::int64_t first, std::span<const Recitation> made) {
  AXONN_CHECK(first >= 0 && first <= counts_.recitations, path_, ": recitation ", first, " after ",
              counts_.recitations);
  reader_.close();
  if (first < counts_.recitations) {  // those of a round that was not complete are made again
    begins_.resize(first + 1);
    std::filesystem::resize_file(path_, begins_.back());
  }
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  for (const Recitation& one : made) {
    const std::string line = to_json(one);
    file << line;
    begins_.push_back(begins_.back() + std::ssize(line));
  }
  file.flush();
  if (!file) refuse(path_, " cannot be written; is its disk full?");
  counts_.recitations = std::ssize(begins_) - 1;
}

void AuditPart::remove() const { std::filesystem::remove(path_); }

}  // namespace axonn
