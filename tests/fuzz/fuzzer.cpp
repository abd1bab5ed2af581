// The main program of libFuzzer: axonn_fuzz --target=NAME CORPUS... [-max_total_time=60 ...].
// axonn_fuzz --seeds=FOLDER --target=NAME writes the target's seeds to the folder and exits.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "tests/fuzz/targets.h"

namespace {

using axonn::fuzz::Target;

const Target* chosen = nullptr;

std::optional<std::string> value_of(int argc, char** argv, const std::string& flag) {
  for (int i = 1; i < argc; ++i)
    if (const std::string argument = argv[i]; argument.starts_with(flag + "="))
      return argument.substr(flag.size() + 1);
  return std::nullopt;
}

void write_seeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : chosen->seeds())
    std::ofstream(folder + "/seed-" + std::to_string(number++), std::ios::binary) << seed;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string name = value_of(*argc, *argv, "--target").value_or("");
  for (const Target& target : axonn::fuzz::targets())
    if (target.name == name) chosen = &target;
  if (!chosen) {
    std::cerr << "give --target=NAME, one of:\n";
    for (const Target& target : axonn::fuzz::targets()) std::cerr << "  " << target.name << '\n';
    std::exit(2);
  }
  if (const auto folder = value_of(*argc, *argv, "--seeds")) {
    write_seeds(*folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  axonn::fuzz::run(*chosen, {reinterpret_cast<const char*>(data), size});
  return 0;
}
