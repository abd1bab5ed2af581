#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "axonn/base/trace.h"
#include "axonn/comm/communicator.h"
#include "axonn/ops/backend.h"

namespace axonn {

/// Records the operations of every rank in a few steps of a run and writes them to one file for
/// Perfetto (https://ui.perfetto.dev) or chrome://tracing. It must be created before the run's
/// communicators and backend and outlive them.
class StepTracer {
 public:
  /// The first steps allocate memory and learn the order of blocks; the later ones are typical.
  static constexpr std::int64_t kSkipped = 2, kSteps = 3;

  /// If file is "", records nothing and costs nothing. Groups split from world from now on are
  /// traced.
  StepTracer(std::string file, Communicator& world);
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  std::unique_ptr<Backend> wrap(std::unique_ptr<Backend> backend);

  /// Call these before and after each step, counted from 0 in this run. Collective at the first and
  /// the last traced step.
  void before_step(std::int64_t step);
  void after_step(std::int64_t step, const std::string& process);

 private:
  std::string file_;
  Communicator& world_;
  Trace trace_;
};

}  // namespace axonn
