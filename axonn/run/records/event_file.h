#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/run/records/record_file.h"
#include "axonn/run/records/run_steps.h"

namespace axonn {

/// A file of TensorBoard's events: the series of a run, and texts.
///
/// A record is the length of its data (u64), the masked CRC-32C of that, the data, and their masked
/// CRC-32C. The data is an Event of TensorFlow's event.proto. The first one has the version; the
/// second one says at which step this part of the run begins, upon which a TensorBoard that is open
/// drops that step and later ones of earlier files.
/// Source: tensorflow/core/lib/io/record_writer.cc, core/util/event.proto, framework/summary.proto.
class EventFile {
 public:
  /// Creates the file for steps from first_step on. Throws as RecordFile does.
  EventFile(const std::string& path, double time, std::int64_t first_step);

  /// Adds a step. Returns as RecordFile::append() does.
  std::string write(const RunStep& step);
  /// Adds a text, which TensorBoard shows as Markdown.
  std::string write_text(std::int64_t step, double time, std::string_view tag,
                         std::string_view text);
  RecordFile& records() { return file_; }

 private:
  RecordFile file_;
};

/// The text as Markdown that shows it as it is.
std::string as_code(std::string_view text);

/// The paths of this program's event files in a folder, sorted by name, and so by time.
std::vector<std::string> event_files(const std::string& folder);

/// Cuts the event files in a folder behind step `after_step`, as MetricsFile does its file; those
/// that have nothing left are removed. Returns the path of the next one, which sorts behind them,
/// as readers expect. `time`: now, in seconds since 1970. Only files of this program are touched.
/// Throws Error if one cannot be cut.
std::string next_event_file(const std::string& folder, double time, std::int64_t after_step);

}  // namespace axonn
