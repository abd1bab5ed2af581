#include "tests/app/cli/runs.h"

#include <filesystem>
#include <sstream>

namespace axonn::testing_support {

namespace fs = std::filesystem;

SmallRun::SmallRun() {
  test::spill(config(),
              "[model]\nlayers = 1\nhidden = 16\nheads = 4\nvocab = 256\n"
              "[data]\nsynthetic = 20000\n"
              "[training]\nsteps = 6\nseq_len = 8\nglobal_batch = 4\nthreads = 1\n"
              "[optimizer]\nlr = 1e-2\n"
              "[output]\ndir = \"" +
                  out() + "\"\n");
}

std::vector<std::string> SmallRun::train(const std::vector<std::string>& more) const {
  std::vector<std::string> arguments{"train", config()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::map<std::string, std::string> SmallRun::checkpoints() const {
  std::map<std::string, std::string> files;
  const std::string folder = out() + "/checkpoints";
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path()] = test::slurp(entry.path());
  return files;
}

std::vector<std::string> SmallRun::metrics() const {
  std::vector<std::string> lines;
  std::istringstream text(test::slurp(out() + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace axonn::testing_support
