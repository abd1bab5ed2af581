#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace axonn {

/// Objects that threads use one at a time and give back for the next thread.
template <typename T>
class Pool {
 public:
  /// An idle object, or make() if there is none.
  template <typename Make>
  std::unique_ptr<T> take(const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
      }
    }
    return make();
  }
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace axonn
