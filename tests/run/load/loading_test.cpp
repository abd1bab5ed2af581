// Loads a model of 2 GB on eight ranks of z and measures memory and bytes read from disk.
#include <fstream>
#include <mutex>

#include <gmock/gmock.h>

#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/load/loaded_model.h"

#include "tests/support/large_model.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr std::int64_t kModelBytes = 1'900'000'000;

/// Returns a value that a system file gives in KiB ("VmHWM: 123 kB"), in bytes; 0 if there is no
/// such line.
std::int64_t kib_line(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) return std::stoll(line.substr(name.size() + 1)) * 1024;
  return 0;
}

}  // namespace

TEST(Loading, OfTwoGigabytesOnEightRanksTakesASixthPerRankAndReadsThemOnce) {
  const std::int64_t memory = kib_line("/proc/meminfo", "MemAvailable"),
                     disk = free_bytes(testing::TempDir());
  if (memory < kModelBytes * 5 / 4 || disk < kModelBytes * 9 / 8)
    GTEST_SKIP() << "the test needs " << kModelBytes
                 << " bytes of memory and of disk and a little more; "
                 << "there are " << memory << " and " << disk;
  const test::TemporaryPath path;
  const ModelConfig model = large_model(kModelBytes);
  write_large_model(path / "model", model);
  const SafetensorsFolder folder(path / "model");
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : folder.tensors()) bytes += tensor.entry->bytes();
  EXPECT_NEAR(static_cast<double>(bytes), kModelBytes, kModelBytes / 16.0);

  Config config{.model = model};
  config.model.path = path / "model";
  config.training.dtype = DType::bf16;
  config.parallelism.set_grid({.z = 8});
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
  std::mutex mutex;
  std::int64_t read = 0, most = 0;
  run_ranks(8, [&](Communicator& world) {
    LoadedModel loaded(prepared_model(config), world, make_cpu_backend(1), {.trainable = false});
    const LoadCost cost = loaded.initialise();
    const std::scoped_lock lock(mutex);
    read += cost.bytes;
    most = std::max(most, loaded.arena().stats().peak_bytes);
  });
  const std::int64_t peak = kib_line("/proc/self/status", "VmHWM:");
  EXPECT_LT(most, bytes / 6);
  EXPECT_LT(peak / 8, bytes / 6) << "memory of the process, per rank";
  EXPECT_GE(read, bytes);
  EXPECT_LE(static_cast<double>(read), 1.1 * static_cast<double>(bytes));
  std::cout << "model " << bytes << " bytes; a rank's arena at most " << most
            << ", an eighth of the process " << peak / 8 << "; read " << read << '\n';
}
