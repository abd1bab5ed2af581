#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

enum class ExportFormat { csv, tensorboard };

inline constexpr std::array<std::string_view, 2> kExportFormats = {"csv", "tensorboard"};

/// Writes the series of runs, as read_run_steps() gives them, in a format that other tools read.
///
///   csv          the file `out`: a row a step, a column a series; "nan" for a value that is not
///                finite, nothing for one that the step does not have. Of several runs, the first
///                column, "run", is the run's folder
///   tensorboard  a file of events in the folder `out`, with the run's config.toml and its samples
///                as texts; of several runs, in a folder of each run's folder below `out`
///
/// Returns the number of steps. Throws UsageError if a folder has no run, or if `out` has events
/// already; Error if it cannot be written.
std::int64_t export_runs(const std::vector<std::string>& folders, ExportFormat format,
                         const std::string& out);

}  // namespace axonn
