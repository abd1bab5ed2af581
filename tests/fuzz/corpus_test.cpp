// Every build reads or refuses the inputs that fuzzing found and the seeds of each target.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>

#include "tests/fuzz/targets.h"

using namespace axonn::fuzz;

namespace {

class Corpus : public testing::TestWithParam<Target> {};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_P(Corpus, IsReadOrRefusedWithinTheAllowedMemory) {
  const Target& target = GetParam();
  std::vector<std::string> inputs = target.seeds();
  for (const auto& entry : std::filesystem::directory_iterator(std::string(AXONN_FUZZ_CORPUS) +
                                                               '/' + std::string(target.name)))
    inputs.push_back(read(entry.path()));
  ASSERT_FALSE(inputs.empty());
  for (const std::string& input : inputs) {
    SCOPED_TRACE(testing::PrintToString(input.substr(0, 400)));
    EXPECT_NO_THROW(run(target, input));
    EXPECT_NO_THROW(run(target, input.substr(0, input.size() / 2)));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });
