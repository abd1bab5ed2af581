#pragma once

#include <cstddef>
#include <functional>

namespace axonn {

/// Calls f(0), ..., f(count - 1) on up to `threads` threads, of which the caller's is one. Each
/// takes the next index that is left. If calls throw, those at later indices may be left out, and
/// the exception of the lowest index is thrown.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& f);

}  // namespace axonn
