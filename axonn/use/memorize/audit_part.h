#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// Numbers of what an audit has made.
struct AuditCounts {
  std::int64_t recitations = 0;
  std::int64_t values = 0;  ///< after all recitations: of near texts, then by the reference

  bool operator==(const AuditCounts&) const = default;
};

/// What an audit has made so far, in a file, so that it goes on after a kill and memory does not
/// grow with the texts: a line that says what the audit is, a line for each recitation, and then
/// lines with a list of numbers each.
class AuditPart {
 public:
  /// Goes on with the file of an earlier start if it is of the same audit; a last line that a kill
  /// cut short does not count. Begins the file anew otherwise. Throws UsageError if it cannot be
  /// written, or is damaged otherwise.
  AuditPart(std::string path, const std::string& audit);

  const AuditCounts& counts() const { return counts_; }
  /// Read one from the file.
  Recitation recitation(std::int64_t n) const;
  std::vector<double> values(std::int64_t n) const;
  /// Writes recitations, of which the first has this number among all; forgets those known from it
  /// on.
  void append(std::int64_t first, std::span<const Recitation> made);
  /// The same of values, which may be minus infinity.
  void append_values(std::int64_t first, std::span<const std::vector<double>> made);
  void remove() const;

 private:
  void read_lines(const std::string& audit);
  std::string line(std::int64_t n) const;
  /// Replaces the lines from n on.
  void write(std::int64_t n, std::span<const std::string> lines);

  std::string path_;
  AuditCounts counts_;
  std::vector<std::int64_t> begins_;  // of each line after the first, and the end of the file
  mutable std::ifstream reader_;
};

}  // namespace axonn
