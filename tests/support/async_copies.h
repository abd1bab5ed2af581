#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace axonn::testing_support {

/// Emulates a GPU thread's copies to shared memory (cp.async): they happen when they are waited
/// for, as late as a GPU may do them.
class AsyncCopies {
 public:
  template <typename T>
  void start(T* to, const T* from, bool exists) {
    open_.push_back({to, exists ? from : nullptr, sizeof(T)});
  }
  void commit() { groups_.push_back(std::exchange(open_, {})); }
  void wait_but_last() {
    for (; groups_.size() > 1; groups_.erase(groups_.begin()))
      for (const Copy& copy : groups_.front()) {
        if (copy.from)
          std::memcpy(copy.to, copy.from, copy.bytes);
        else
          std::memset(copy.to, 0, copy.bytes);
      }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::vector<Copy> open_;
  std::vector<std::vector<Copy>> groups_;
};

}  // namespace axonn::testing_support
