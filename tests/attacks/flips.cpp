// Flips thousands of bits, one in each of as many short trainings, and prints what became of them.
//
// Usage: axonn_flips [FLIPS [SEED [KEYS [ONE]]]]
//
//   ONE   does only the flip with this number after "seed", in this process
//   KEYS  names of checks that are on: "state", "products", "operations", "values"; all by default
//
// Each training is a process of its own, so that one that a flip crashes or hangs is counted, too.
#include "tests/support/flips.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr int kEnds = std::size(kFlipEnds), kCrashed = kEnds, kOutcomes = kEnds + 1;
constexpr unsigned kHangs = 60;  // seconds

/// Runs the training with the flip in a process, which prints a flip that is missed, and returns
/// the outcome.
int outcome_of(const PreparedRun& run, const Flip& flip, const FlippedRun& clean,
               const std::string& setting) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kHangs);
    const FlippedRun end = run_with_flip(run, &flip);
    const FlipEnd what = end_of(end, clean, flip);
    if (what == FlipEnd::missed || what == FlipEnd::other)
      std::printf("%s: %s, moment %lld of %s, seed %llu: %s %s\n", setting.c_str(),
                  std::string(kFlipEnds[static_cast<int>(what)]).c_str(),
                  static_cast<long long>(flip.moment),
                  std::string(kFlipKinds[static_cast<int>(flip.in)]).c_str(),
                  static_cast<unsigned long long>(flip.seed), end.hit.c_str(), end.error.c_str());
    std::fflush(stdout);
    ::_exit(static_cast<int>(what));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) < kEnds ? WEXITSTATUS(status) : kCrashed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t flips = argc > 1 ? std::atoll(argv[1]) : 10000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::string keys = argc > 3 ? argv[3] : "state,products,operations,values";
  const std::uint64_t one = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  const auto on = [&](const char* key) { return keys.find(key) != std::string::npos; };
  const auto settings = flip_settings();
  std::map<FlipIn, std::array<std::int64_t, kOutcomes>> table;
  std::int64_t done = 0, alarms = 0;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    Config config = settings[i].config;
    config.training.verify_state = on("state");
    config.training.verify_products = on("products");
    config.training.verify_operations = on("operations");
    config.training.verify_values = on("values");
    const PreparedRun run = prepared(config);
    const FlippedRun clean = run_with_flip(run, nullptr);
    alarms += clean.error.empty() ? 0 : 1;
    if (!clean.error.empty()) std::printf("false alarm: %s\n", clean.error.c_str());
    const std::int64_t until = flips * static_cast<std::int64_t>(i + 1) / std::ssize(settings);
    for (; done < until; ++done) {
      const auto in = static_cast<FlipIn>(done % kFlips);
      const Flip flip = random_flip(in, clean, seed * 1'000'000 + done);
      if (one > 0 && flip.seed != one) continue;
      if (one > 0) {
        const FlippedRun end = run_with_flip(run, &flip);
        std::printf("%s: %s\n%s\n",
                    std::string(kFlipEnds[static_cast<int>(end_of(end, clean, flip))]).c_str(),
                    end.hit.c_str(), end.error.c_str());
        for (const std::string& remark : end.remarks) std::printf("%s\n", remark.c_str());
        return 0;
      }
      ++table[in][outcome_of(run, flip, clean, settings[i].name)];
    }
  }
  std::printf("\n| a bit of a |");
  for (const auto name : kFlipEnds) std::printf(" %s |", std::string(name).c_str());
  std::printf(" crashed |\n");
  for (const auto& [in, row] : table) {
    std::printf("| %s |", std::string(kFlipKinds[static_cast<int>(in)]).c_str());
    for (const std::int64_t count : row) std::printf(" %lld |", static_cast<long long>(count));
    std::printf("\n");
  }
  return alarms > 0 ? 1 : 0;
}
