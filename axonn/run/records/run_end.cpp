#include "axonn/run/records/run_end.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

constexpr std::size_t kMostBytes = 4000;  // of the file: less than a block
constexpr std::array<std::string_view, 4> kEnds = {"", "finished", "stopped", "failed"};
constexpr std::string_view kProcess = "process ", kOn = " on ", kSince = ", since ";

std::string lock_path(const std::string& folder) { return folder + "/lock"; }

std::string bytes_of(int file) {
  std::string bytes(kMostBytes, '\0');
  const ssize_t got = ::pread(file, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

}  // namespace

RunProcess read_run_process(const std::string& folder) {
  RunProcess result;
  const FileHandle file(::open(lock_path(folder).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return result;
  const std::string bytes = bytes_of(file.get());
  const std::string_view all = bytes, first = all.substr(0, all.find('\n'));
  result.text = first;
  const std::size_t on = first.find(kOn), since = first.find(kSince);
  if (first.starts_with(kProcess) && on < since && since != first.npos) {
    result.host = first.substr(on + kOn.size(), since - on - kOn.size());
    std::from_chars(first.data() + kProcess.size(), first.data() + on, result.process);
  }
  const std::string_view rest = all.substr(std::min(first.size() + 1, all.size()));
  const std::string_view second = rest.substr(0, rest.find('\n'));
  const std::size_t comma = second.find(", "), colon = second.find(": ");
  const auto end = std::ranges::find(kEnds, second.substr(0, comma));
  if (second.empty() || end == kEnds.end() || comma > colon || colon == second.npos) return result;
  result.end = static_cast<RunEnd>(end - kEnds.begin());
  result.when = second.substr(comma + 2, colon - comma - 2);
  result.why = second.substr(colon + 2);
  return result;
}

std::string this_run_process() {
  std::string host(256, '\0');
  if (::gethostname(host.data(), host.size() - 1) != 0) host = "an unknown host";
  return fmt::format("{}{}{}{}{}{}", kProcess, ::getpid(), kOn, host.c_str(), kSince, utc_now());
}

void note_run_end(const std::string& folder, RunEnd end, std::string_view why) noexcept {
  try {
    const FileHandle file(::open(lock_path(folder).c_str(), O_RDWR | O_CLOEXEC));
    if (file.get() < 0) return;
    const std::string before = bytes_of(file.get());
    const std::size_t line = before.find('\n');
    if (line == before.npos || line + 1 < before.size()) return;  // somebody was first
    std::string text =
        fmt::format("{}, {}: {}", kEnds[static_cast<std::size_t>(end)], utc_now(), why);
    std::ranges::replace(text, '\n', ' ');
    text.resize(std::min(text.size(), kMostBytes - before.size() - 1));
    text += '\n';
    static_cast<void>(
        !::pwrite(file.get(), text.data(), text.size(), static_cast<off_t>(before.size())));
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace axonn
