#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// What one rank did when, for chrome://tracing and Perfetto: a row for computing, on which waits
/// show too, and a row for each group of ranks. Used by the rank's own thread. Off until start().
class Trace {
 public:
  static constexpr std::string_view kCompute = "compute";

  /// Times are shown relative to now; call it on all ranks right after a barrier.
  void start();
  void stop() { on_ = false; }
  bool on() const { return on_; }

  /// Something on `row` from begin to end, as now_seconds() gives them. Spans of kCompute do not
  /// overlap; those of other rows may. Ignored while off.
  void span(std::string_view row, std::string name, double begin, double end);

  /// The events as JSON objects, separated by commas; `process` is the rank's name.
  std::string events(int rank, const std::string& process) const;

 private:
  struct Span {
    int row;
    std::string name;
    double begin, end;
  };
  int row_of(std::string_view row);

  bool on_ = false;
  double origin_ = 0;
  std::vector<std::string> rows_{std::string(kCompute)};
  std::vector<Span> spans_;
};

/// The file: the ranks' events in one JSON document.
std::string trace_file(const std::vector<std::string>& events);

}  // namespace axonn
