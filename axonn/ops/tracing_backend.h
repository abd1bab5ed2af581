#pragma once

#include <memory>

#include "axonn/base/trace.h"
#include "axonn/ops/backend.h"

namespace axonn {

/// A Backend that records the time and layer of every operation of another one in a trace, which
/// must outlive it. For devices whose operations are complete when they return.
std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace);

}  // namespace axonn
