#include "axonn/data/corpus/tokens/growing_tokens.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

bool GrowingTokens::recognises(const std::string& path) { return path_exists(path + ".written"); }

void GrowingTokens::wait_for(std::int64_t count) const {
  constexpr std::chrono::milliseconds kBetweenLooks{10};
  while (written_ < count) {
    std::int64_t written = 0, process = 0;
    std::string fault;
    // Looked for before the line is read: what a process wrote before its end is then in the line.
    std::istringstream before(read_text(state_path_));
    before >> written >> process;
    const bool lives = path_exists(concat("/proc/", process));
    std::istringstream line(read_text(state_path_));
    if (!(line >> written >> process)) refuse(state_path_, ": is no line of a count and a process");
    std::getline(line >> std::ws, fault);
    written_ = written;
    if (written >= count) return;
    if (!fault.empty()) refuse(name(), ": ", written, " tokens are there, and then: ", fault);
    if (!lives)
      refuse(name(), ": ", written, " tokens are there, and the process ", process,
             " that wrote them has ended");
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void GrowingTokens::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  wait_for(begin + std::ssize(tokens));
  file_.read(begin, tokens);
}

}  // namespace axonn
