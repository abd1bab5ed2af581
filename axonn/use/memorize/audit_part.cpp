#include "axonn/use/memorize/audit_part.h"

#include <filesystem>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/use/memorize/report/json.h"

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
    const std::string where = concat(path_, " line ", begins_.size() + 1);
    if (line.starts_with("[")) {
      parse_values(line, where);
      ++counts_.values;
    } else {
      if (counts_.values > 0) refuse(where, ": a recitation after values");
      parse_recitation(line, where);
      ++counts_.recitations;
    }
    begins_.push_back(begins_.back() + std::ssize(line) + 1);
  }
}

std::string AuditPart::line(std::int64_t n) const {
  if (!reader_.is_open()) reader_.open(path_, std::ios::binary);
  std::string text(begins_[n + 1] - begins_[n], '\0');
  if (reader_.tellg() != begins_[n]) reader_.seekg(begins_[n]);
  reader_.read(text.data(), std::ssize(text));
  if (!reader_) refuse(path_, " has become shorter");
  return text;
}

Recitation AuditPart::recitation(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < counts_.recitations, path_, ": recitation ", n, " of ",
              counts_.recitations);
  return parse_recitation(line(n), concat(path_, " line ", n + 2));
}

std::vector<double> AuditPart::values(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < counts_.values, path_, ": value ", n, " of ", counts_.values);
  const std::int64_t at = counts_.recitations + n;
  return parse_values(line(at), concat(path_, " line ", at + 2));
}

void AuditPart::append(std::int64_t first, std::span<const Recitation> made) {
  AXONN_CHECK(first >= 0 && first <= counts_.recitations, path_, ": recitation ", first, " after ",
              counts_.recitations);
  std::vector<std::string> lines;
  for (const Recitation& one : made) lines.push_back(to_json(one));
  write(first, lines);
  counts_ = {.recitations = first + std::ssize(made)};
}

void AuditPart::append_values(std::int64_t first, std::span<const std::vector<double>> made) {
  AXONN_CHECK(first >= 0 && first <= counts_.values, path_, ": value ", first, " after ",
              counts_.values);
  std::vector<std::string> lines;
  for (const std::vector<double>& one : made) lines.push_back(to_json(one));
  write(counts_.recitations + first, lines);
  counts_.values = first + std::ssize(made);
}

void AuditPart::write(std::int64_t n, std::span<const std::string> lines) {
  reader_.close();
  if (n + 1 < std::ssize(begins_)) {  // those of a round that was not complete are made again
    begins_.resize(n + 1);
    std::filesystem::resize_file(path_, begins_.back());
  }
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  for (const std::string& one : lines) {
    file << one;
    begins_.push_back(begins_.back() + std::ssize(one));
  }
  file.flush();
  if (!file) refuse(path_, " cannot be written; is its disk full?");
}

void AuditPart::remove() const { std::filesystem::remove(path_); }

}  // namespace axonn
