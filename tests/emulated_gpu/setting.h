#pragma once

#include <cstdlib>

#include "tests/emulated_gpu/platform.h"

namespace emulated_gpu {

/// A variable of the environment while it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { unsetenv(name_); }

 private:
  const char* name_;
};

/// Another order of the work.
inline void reseed(unsigned seed) {
  const Locked locked;
  random_numbers().seed(seed);
}

}  // namespace emulated_gpu
