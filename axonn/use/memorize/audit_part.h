#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/use/memorize/report.h"

namespace axonn {

/// What an audit has made so far, in a file beside its result, so that it goes on after a kill: a
/// line that says what the audit is, and a line for each recitation.
class AuditPart {
 public:
  /// Reads the recitations of an earlier start if the file is of the same audit; a last line that a
  /// kill cut short does not count. Begins the file anew otherwise. Throws UsageError if it cannot
  /// be written, or is damaged otherwise.
  AuditPart(std::string path, const std::string& audit);

  const std::vector<Recitation>& known() const { return known_; }
  /// Writes recitations, of which the first has this place among all; forgets those known from it
  /// on.
  void append(std::int64_t first, std::span<const Recitation> made);
  void remove() const;

 private:
  std::string path_, audit_;
  std::vector<Recitation> known_;
  std::int64_t written_ = 0;  // recitations in the file
};

}  // namespace axonn
