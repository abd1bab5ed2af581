#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/app/cli/program.h"
#include "tests/support/temporary_path.h"

namespace axonn::testing_support {

/// A folder with the config and the output of a run that takes a tenth of a second.
class SmallRun {
 public:
  SmallRun();

  std::string config() const { return folder_ / "run.toml"; }
  std::string out() const { return folder_ / "out"; }
  std::string operator/(const std::string& name) const { return folder_ / name; }

  /// The arguments of `axonn train CONFIG`, with more that override the config.
  std::vector<std::string> train(const std::vector<std::string>& more = {}) const;

  /// Name and contents of every file of the checkpoints.
  std::map<std::string, std::string> checkpoints() const;
  /// The lines of metrics.jsonl, one per step.
  std::vector<std::string> metrics() const;

 private:
  test::TemporaryPath folder_;
};

}  // namespace axonn::testing_support
