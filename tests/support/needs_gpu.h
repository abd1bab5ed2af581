#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace axonn::test {

/// For want of a GPU: skips the test that runs now and says why. Where one was promised, by
/// AXONN_TESTS_NEED_GPU=1 in the environment, the test fails.
inline void skip_without_gpu(const std::string& why) {
  if (std::getenv("AXONN_TESTS_NEED_GPU")) FAIL() << why;
  GTEST_SKIP() << why;
}

}  // namespace axonn::test
