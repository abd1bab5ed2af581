#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/corpus/packing.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// The sums of log-probabilities that a reference has for answers, in a file of a cache's folder,
/// so that a run that resumes or begins anew need not compute them again. The file's name has a
/// hash of all tokens of the answers, of the reference's files (paths, sizes and times) and of the
/// keys that the sums depend on.
class ReferenceScores {
 public:
  /// folder: "": nothing is kept.
  ReferenceScores(const std::string& folder, const PreparedRun& run);

  /// The sums of these answers, `count` numbers; none if they are not there or damaged. Reads all
  /// answers.
  std::optional<std::vector<double>> read(const DocumentRange& answers, std::int64_t count) const;
  /// Replaces the file. Throws UsageError as write_file_atomically() does.
  void write(const DocumentRange& answers, std::span<const double> sums) const;

 private:
  std::string path_of(const DocumentRange& answers) const;

  std::string folder_, run_;
};

}  // namespace axonn
