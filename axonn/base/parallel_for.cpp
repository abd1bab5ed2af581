#include "axonn/base/parallel_for.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace axonn {

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& f) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = count;  // the lowest index that threw
  std::exception_ptr error;
  const auto work = [&] {
    std::size_t i = 0;
    try {
      while ((i = next++) < count) f(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      next = count;  // lower indices were taken before, so their calls still end
      if (i >= failed) return;
      failed = i;
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < count && std::cmp_less(i, threads); ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace axonn
