#include "axonn/study/recitation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

void compare(std::span<const std::int32_t> truth, std::span<const std::int32_t> written,
             Recitation& recitation) {
  AXONN_CHECK(!truth.empty(), "compare: the true text has no tokens");
  const std::size_t n = truth.size(), m = written.size();
  std::int64_t same = 0, longest = 0;
  for (std::size_t i = 0; i < std::min(n, m); ++i) same += truth[i] == written[i];

  // Dynamic programming, one row at a time: lengths of the common runs that end at (i, j), and
  // edit distances of the first i and j tokens.
  std::vector<std::int64_t> runs(m + 1, 0), distance(m + 1);
  std::iota(distance.begin(), distance.end(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t run_before = 0, distance_before = distance[0];
    distance[0] = static_cast<std::int64_t>(i) + 1;
    for (std::size_t j = 0; j < m; ++j) {
      const bool equal = truth[i] == written[j];
      const std::int64_t run = equal ? run_before + 1 : 0;
      const std::int64_t least =
          std::min({distance_before + (equal ? 0 : 1), distance[j] + 1, distance[j + 1] + 1});
      run_before = std::exchange(runs[j + 1], run);
      distance_before = std::exchange(distance[j + 1], least);
      longest = std::max(longest, run);
    }
  }
  recitation.exact = std::ranges::equal(truth, written);
  recitation.longest_run = longest;
  recitation.token_accuracy = static_cast<double>(same) / static_cast<double>(n);
  recitation.edit_distance = distance[m];
}

}  // namespace axonn
