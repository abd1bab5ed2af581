#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

enum class RunEnd {
  unknown,   ///< it goes on, or was killed, or its disk had no room for a word
  finished,  ///< all steps are done and saved
  stopped,   ///< by a signal, with a checkpoint
  failed     ///< by an error
};

/// The process that writes to a run's folder, or was the last to, as the file DIR/lock has it:
///
///   process 1234 on nid0001, since 2026-11-21 17:40:02 UTC
///   failed, 2026-11-21 18:02:11 UTC: step 12 was not finite ...
///
/// The second line is missing until the end. Each start begins the file anew.
struct RunProcess {
  std::string text;          ///< the first line; "": there is no such file
  std::int64_t process = 0;  ///< 0: unknown
  std::string host;
  RunEnd end = RunEnd::unknown;
  std::string when, why;  ///< of the end: "2026-11-21 18:02:11 UTC"; a line that says more
};

/// Reads DIR/lock, without touching the lock. Never throws: what cannot be read is unknown.
RunProcess read_run_process(const std::string& folder);

/// The first line for this process, started now, without its end.
std::string this_run_process();

/// Notes the end of the run that holds the folder's lock; any of its ranks may. The first end that
/// is noted stays. It needs no further room on a full disk, since the file has its block. Never
/// throws.
void note_run_end(const std::string& folder, RunEnd end, std::string_view why) noexcept;

}  // namespace axonn
