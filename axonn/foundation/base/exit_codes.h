#pragma once

namespace axonn {

/// Exit codes of the program other than 0 (success).
inline constexpr int kFailed = 1;         ///< an error, or for check: the grids disagree
inline constexpr int kUsageError = 2;     ///< usage error: an invalid key, value, file or grid
inline constexpr int kStoppedEarly = 75;  ///< by a signal, after saving a checkpoint; requeue it

}  // namespace axonn
