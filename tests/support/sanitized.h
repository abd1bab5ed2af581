#pragma once

#include <cstdlib>

namespace axonn::testing_support {

/// True under sanitizers, where everything takes ten times as long: tests then run the same code on
/// fewer grids and for fewer steps. scripts/testing sets AXONN_TEST_SANITIZED.
inline bool sanitized() { return std::getenv("AXONN_TEST_SANITIZED") != nullptr; }

}  // namespace axonn::testing_support
