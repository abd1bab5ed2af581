#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/run/config/prepared_run.h"

namespace axonn {

struct Corpus;

/// The sums of log-probabilities that a reference has for answers, in a file of a cache's folder,
/// so that a run that resumes or begins anew need not compute them again. The file's name has a
/// hash of the run's data, of the reference's files (paths, sizes and times) and of the keys that
/// the sums depend on.
class ReferenceScores {
 public:
  /// folder: "": nothing is kept.
  ReferenceScores(const std::string& folder, const PreparedRun& run, const Corpus& corpus);

  /// The sums of the `count` answers of `kind`, such as "training"; none if they are not there or
  /// damaged.
  std::optional<std::vector<double>> read(const std::string& kind, std::int64_t count) const;
  /// Replaces the file. Throws UsageError as write_file_atomically() does.
  void write(const std::string& kind, std::span<const double> sums) const;

 private:
  std::string path_of(const std::string& kind) const;

  std::string folder_, key_;
};

}  // namespace axonn
