#include "tests/support/dry_peak.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/recompute.h"

namespace axonn::testing_support {

namespace {

std::int64_t total(const MemoryParts& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

std::string describe(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  return concat("grid ", with_factors(p.grid()), ", ", name_of(config.training.dtype), ", ",
                describe_recomputation(config), ", micro-batches of ", config.training.micro_batch,
                ", chunks ", p.chunks, p.overlap.weights ? "" : ", no overlap of weights",
                p.overlap.context ? "" : ", no overlap of the context",
                p.sequence_parallel ? "" : ", rows not cut");
}

}  // namespace

void expect_dry_peak(const PreparedRun& run, const std::function<void(Training&)>& before) {
  std::vector<ArenaStats> real(run->parallelism.grid().ranks());
  run_ranks(static_cast<int>(real.size()), [&](Communicator& world) {
    const bool on_gpu = is_gpu(run->parallelism.device);
    Training training(run, world, on_gpu ? nullptr : make_cpu_backend(1));
    training.model.initialise();
    if (before) before(training);
    for (int step = 0; step < 2; ++step) training.run(step);
    real[world.rank()] = training.model.arena().stats();
  });
  for (int rank = 0; rank < std::ssize(real); ++rank) {
    SCOPED_TRACE(concat(describe(run.config()), ", rank ", rank));
    const ArenaStats dry = dry_step(run, rank).memory;
    EXPECT_EQ(dry.peak_bytes, real[rank].peak_bytes);
    EXPECT_EQ(dry.peak_by, real[rank].peak_by);
    EXPECT_EQ(dry.live_bytes, real[rank].live_bytes);
    EXPECT_EQ(total(dry.peak_by), dry.peak_bytes);
    EXPECT_EQ(total(dry.live_by), dry.live_bytes);
  }
}

}  // namespace axonn::testing_support
