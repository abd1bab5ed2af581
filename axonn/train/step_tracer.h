#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "axonn/base/trace.h"
#include "axonn/comm/communicator.h"
#include "axonn/ops/backend.h"

namespace axonn {

/// Notes what every rank does in a few steps of a run and writes it to one file, for Perfetto
/// (https://ui.perfetto.dev) or chrome://tracing. Make it before the session, which outlives none
/// of its parts.
class StepTracer {
 public:
  /// The first steps make room and learn the order of things; those after them tell the truth.
  static constexpr std::int64_t kSkipped = 2, kSteps = 3;

  /// file "": traces nothing and costs nothing. Groups split from world from now on are traced.
  StepTracer(std::string file, Communicator& world);
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  std::unique_ptr<Backend> wrap(std::unique_ptr<Backend> backend);

  /// Around each step, counted from 0 in this run. Collective at the first and the last traced one.
  void before_step(std::int64_t step);
  void after_step(std::int64_t step, const std::string& process);

 private:
  std::string file_;
  Communicator& world_;
  Trace trace_;
};

}  // namespace axonn
