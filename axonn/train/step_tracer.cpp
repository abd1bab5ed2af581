#include "axonn/train/step_tracer.h"

#include <vector>

#include "axonn/base/files.h"
#include "axonn/comm/texts.h"
#include "axonn/ops/forwarding_backend.h"

namespace axonn {

StepTracer::StepTracer(std::string file, Communicator& world)
    : file_(std::move(file)), world_(world) {
  if (!file_.empty()) world_.set_trace(&trace_);
}

StepTracer::~StepTracer() { world_.set_trace(nullptr); }

std::unique_ptr<Backend> StepTracer::wrap(std::unique_ptr<Backend> backend) {
  if (file_.empty()) return backend;
  return make_tracing_backend(std::move(backend), trace_);
}

void StepTracer::before_step(std::int64_t step) {
  if (file_.empty() || step != kSkipped) return;
  world_.barrier("trace");  // so that all ranks start their clocks together
  trace_.start();
}

void StepTracer::after_step(std::int64_t step, const std::string& process) {
  if (file_.empty() || step != kSkipped + kSteps - 1) return;
  trace_.stop();
  std::vector<std::string> all;
  gather_texts(world_, trace_.events(world_.rank(), process),
               [&](std::string events) { all.push_back(std::move(events)); });
  if (world_.rank() == 0) write_file_atomically(file_, trace_file(all));
}

}  // namespace axonn
