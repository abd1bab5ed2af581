#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

enum class ExportFormat { csv, tensorboard };

inline constexpr std::array<std::string_view, 2> kExportFormats = {"csv", "tensorboard"};

/// Writes the series of a run, as read_run_steps() gives them, in a format that other tools read.
///
///   csv          the file `out`: a row a step, a column a series; "nan" for a value that is not
///                finite, nothing for one that the step does not have
///   tensorboard  a file of events in the folder `out`, with the run's config.toml and its samples
///                as texts
///
/// Returns the number of steps. Throws UsageError if the folder has no run, or if `out` has events
/// already; Error if it cannot be written.
std::int64_t export_run(const std::string& folder, ExportFormat format, const std::string& out);

}  // namespace axonn
