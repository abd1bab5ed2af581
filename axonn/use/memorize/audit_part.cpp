#include "axonn/use/memorize/audit_part.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/use/memorize/report_json.h"

namespace axonn {

AuditPart::AuditPart(std::string path, const std::string& audit)
    : path_(std::move(path)), audit_(audit) {
  std::string kept = audit_ + "\n";
  if (std::filesystem::exists(path_)) {
    const std::string text = read_text(path_);
    std::size_t begin = text.starts_with(kept) ? kept.size() : text.size();
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = text.substr(begin, end - begin);
      known_.push_back(parse_recitation(line, concat(path_, " line ", known_.size() + 2)));
      kept += line + "\n";
    }
  }
  written_ = std::ssize(known_);
  write_file_atomically(path_, kept);
}

void AuditPart::append(std::int64_t first, std::span<const Recitation> made) {
  AXONN_CHECK(first >= 0 && first <= written_, path_, ": recitation ", first, " after ", written_);
  if (first < written_) {  // those of a round that was not complete are made again
    known_.resize(first);
    std::string kept = audit_ + "\n";
    for (const Recitation& one : known_) kept += to_json(one);
    write_file_atomically(path_, kept);
    written_ = first;
  }
  written_ += std::ssize(made);
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  for (const Recitation& one : made) file << to_json(one);
  file.flush();
  if (!file) refuse(path_, " cannot be written; is its disk full?");
}

void AuditPart::remove() const { std::filesystem::remove(path_); }

}  // namespace axonn
