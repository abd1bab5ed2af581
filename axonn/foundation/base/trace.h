#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/moment.h"

namespace axonn {

/// Records one rank's timeline for chrome://tracing and Perfetto: one row for the compute thread,
/// including its waits, and one row per communicator. Used by the rank's own thread. Off until
/// start().
class Trace {
 public:
  static constexpr std::string_view kCompute = "compute";

  /// Starts recording. Times are shown relative to this call, so make it on all ranks right after a
  /// barrier.
  void start();
  void stop() { on_ = false; }
  bool on() const { return on_; }

  /// Records a span on `row`. Spans of kCompute must not overlap; those of other rows may. Ignored
  /// while off.
  void span(std::string_view row, std::string name, Moment begin, Moment end);

  /// The events as JSON objects separated by commas. `process` is the rank's display name. Waits
  /// for devices whose moments are not known yet.
  std::string events(int rank, const std::string& process) const;

 private:
  struct Span {
    int row;
    std::string name;
    Moment begin, end;
  };

  bool on_ = false;
  double origin_ = 0;
  std::vector<std::string> rows_{std::string(kCompute)};
  std::vector<Span> spans_;
};

/// Combines the events of all ranks into one JSON document, the content of a trace file.
std::string trace_file(const std::vector<std::string>& events);

}  // namespace axonn
