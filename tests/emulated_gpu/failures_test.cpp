// A training in which one call of CUDA, cuBLASLt or NCCL fails, whichever it is: it ends with an
// error that names the call, or is not disturbed; never with a hang or a crash.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/emulated_gpu/setting.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

using Calls = std::map<std::string, std::int64_t>;

Config short_config(TransportKind transport) {
  Config config = on_grid(tiny_config("unused"), {.z = 2});
  config.training.steps = 2;
  config.training.global_batch = 4;
  config.training.eval_every = 0;
  config.data.synthetic = 1000;
  config.model.layers = 1;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.parallelism.device = DeviceKind::cuda;
  config.parallelism.transport = transport;
  config.parallelism.timeout_seconds = 5;
  return config;
}

/// The message of the error that ends the run; "" if none does.
std::string failure_of_run(Config config) {
  test::TemporaryPath folder;
  config.output.dir = folder.path();
  return failure_of(config);
}

Calls calls_of_run(const Config& config) {
  const Calls before = emulated_gpu::calls();
  EXPECT_EQ(failure_of_run(config), "");
  Calls made;
  for (const auto& [function, count] : emulated_gpu::calls()) {
    const auto earlier = before.find(function);
    const std::int64_t here = count - (earlier == before.end() ? 0 : earlier->second);
    if (here > 0) made[function] = here;
  }
  return made;
}

/// Whether the program can go on if the call fails: it releases something, or asks for what it can
/// do without.
bool may_be_ignored(const std::string& function) {
  for (const char* const part :
       {"Destroy", "Free", "Abort", "GetHeuristic", "GetVersion", "GetLastError"})
    if (function.find(part) != std::string::npos) return true;
  // Refused products may follow in parts; a wait for a copy is followed by one that reports; and
  // info and the log ask for versions.
  return function == "cublasLtMatmul" || function == "cudaEventSynchronize" ||
         function == "cudaDriverGetVersion";
}

class Failures : public testing::TestWithParam<TransportKind> {};

}  // namespace

TEST_P(Failures, OfAnyOneCallAreErrorsThatNameIt) {
  const Config config = short_config(GetParam());
  std::mt19937 random(1);
  for (const auto& [function, count] : calls_of_run(config)) {
    // How often some are called, such as those that ask whether NCCL is ready, varies.
    const std::int64_t most = std::clamp<std::int64_t>(count / 2, 1, 200);
    const int nth = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(most));
    SCOPED_TRACE(function + ", call " + std::to_string(nth) + " of " + std::to_string(count));
    // An arena that gets no memory asks once more, for less. Of three calls one rank makes two.
    for (int i = 0; i < (function == "cudaMalloc" ? 3 : 1); ++i)
      emulated_gpu::fail_call(function, nth + i);
    const std::string message = failure_of_run(config);
    const bool has_failed = !emulated_gpu::forget_failures();
    if (message.empty() && (may_be_ignored(function) || !has_failed)) continue;
    EXPECT_THAT(message, HasSubstr(function == "ncclAsync" ? "nccl" : function));
  }
  EXPECT_EQ(failure_of_run(config), "");
}

INSTANTIATE_TEST_SUITE_P(OfTransports, Failures,
                         testing::Values(TransportKind::threads, TransportKind::nccl),
                         [](const auto& of) {
                           return of.param == TransportKind::nccl ? "nccl" : "threads";
                         });
