#pragma once

#include <memory>

#include "axonn/base/trace.h"
#include "axonn/ops/backend.h"

namespace axonn {

/// A Backend that notes every operation of another, with the layer it belongs to, in a trace, which
/// must outlive it. For devices whose operations are done when they return.
std::unique_ptr<Backend> make_tracing_backend(std::unique_ptr<Backend> inner, Trace& trace);

}  // namespace axonn
