#include "axonn/run/records/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.", kSuffix = ".axonn";
constexpr std::int64_t kFrameBytes = 16;  // of a record, besides its data

/// CRC-32C, of the polynomial 0x1edc6f41 in reversed order. Source: RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0x82f63b78u : 0);
    }
    return table;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

/// The form in which records store it, since a CRC of data with its CRC in it is weak.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

template <typename T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <typename T>
T from_little_endian(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string record_of(std::string_view data) {
  const std::string length = little_endian<std::uint64_t>(data.size());
  return concat(length, little_endian(masked(crc32c(length))), data,
                little_endian(masked(crc32c(data))));
}

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// A message of protocol buffers.
class Proto {
 public:
  Proto& number(std::uint32_t field, std::uint64_t value) {
    return head(field, kVarint).varint(value);
  }
  Proto& real(std::uint32_t field, double value) {
    head(field, kFixed64).text_ += little_endian(value);
    return *this;
  }
  Proto& real32(std::uint32_t field, float value) {
    head(field, kFixed32).text_ += little_endian(value);
    return *this;
  }
  Proto& bytes(std::uint32_t field, std::string_view value) {
    head(field, kBytes).varint(value.size()).text_ += value;
    return *this;
  }
  Proto& message(std::uint32_t field, const Proto& value) { return bytes(field, value.text_); }
  const std::string& text() const { return text_; }

 private:
  Proto& head(std::uint32_t field, WireType type) { return varint(field << 3 | type); }
  Proto& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
    return *this;
  }

  std::string text_;
};

// Fields of Event.
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

Proto event(double time, std::int64_t step) {
  Proto result;
  result.real(kWallTime, time);
  if (step != 0) result.number(kStep, static_cast<std::uint64_t>(step));
  return result;
}

/// The text with U+FFFD for each byte that is no part of a character: TensorBoard's page fails for
/// others.
std::string well_formed(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t valid = valid_utf8_prefix(text);
    result += text.substr(0, valid);
    if (valid == text.size()) return result;
    result += "\xef\xbf\xbd";
    text.remove_prefix(valid + 1);
  }
}

std::optional<std::uint64_t> take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// The step of an Event, 0 if it has none; empty if it is no message.
std::optional<std::int64_t> step_of_event(std::string_view event) {
  while (!event.empty()) {
    const auto head = take_varint(event);
    if (!head) return std::nullopt;
    std::optional<std::uint64_t> bytes = 0;
    const std::uint64_t type = *head & 7;
    if (type == kVarint || type == kBytes) bytes = take_varint(event);
    if (!bytes) return std::nullopt;
    if (*head == (kStep << 3 | kVarint)) return static_cast<std::int64_t>(*bytes);
    if (type == kVarint) continue;
    if (type == kFixed64) bytes = 8;
    if (type == kFixed32) bytes = 4;
    if (*bytes > event.size()) return std::nullopt;
    event.remove_prefix(*bytes);
  }
  return 0;
}

/// The records of a file that are whole and not behind a step.
struct KeptRecords {
  std::int64_t bytes = 0, count = 0;
};

KeptRecords kept_records(const std::string& path, std::int64_t after_step) {
  const InputFile file(path);
  KeptRecords kept;
  std::string head(12, '\0'), data;
  while (file.bytes() - kept.bytes >= kFrameBytes) {
    file.read(kept.bytes, std::as_writable_bytes(std::span(head)));
    const auto length = from_little_endian<std::uint64_t>(head);
    const std::string_view view(head);
    if (from_little_endian<std::uint32_t>(view.substr(8)) != masked(crc32c(view.substr(0, 8))) ||
        length > static_cast<std::uint64_t>(file.bytes() - kept.bytes - kFrameBytes))
      break;
    data.resize(length + 4);
    file.read(kept.bytes + 12, std::as_writable_bytes(std::span(data)));
    const std::string_view event = std::string_view(data).substr(0, length);
    if (from_little_endian<std::uint32_t>(std::string_view(data).substr(length)) !=
        masked(crc32c(event)))
      break;
    const auto step = step_of_event(event);
    if (!step || *step > after_step) break;
    kept.bytes += kFrameBytes + static_cast<std::int64_t>(length);
    ++kept.count;
  }
  return kept;
}

/// The time in the name of an event file, in seconds.
std::int64_t time_of(const std::string& path) {
  const std::string name = fs::path(path).filename();
  return std::atoll(name.c_str() + kPrefix.size());
}

}  // namespace

EventFile::EventFile(const std::string& path, double time, std::int64_t first_step)
    : file_(path, 0) {
  constexpr std::uint64_t kStart = 1;  // SessionLog.START
  file_.append(record_of(event(time, 0).bytes(kFileVersion, "brain.Event:2").text()));
  file_.append(
      record_of(event(time, first_step).message(kSessionLog, Proto().number(1, kStart)).text()));
}

std::string EventFile::write(const RunStep& step) {
  Proto summary;
  for (const RunValue& one : step.values)
    summary.message(1, Proto().bytes(1, series_of(one)).real32(2, static_cast<float>(one.value)));
  return file_.append(record_of(event(step.time, step.step).message(kSummary, summary).text()));
}

std::string EventFile::write_text(std::int64_t step, double time, std::string_view tag,
                                  std::string_view text) {
  constexpr std::uint64_t kString = 7, kTensorData = 2;  // DT_STRING, DATA_CLASS_TENSOR
  const Proto shape = Proto().message(2, Proto().number(1, 1)),
              tensor = Proto().number(1, kString).message(2, shape).bytes(8, well_formed(text)),
              metadata = Proto().message(1, Proto().bytes(1, "text")).number(4, kTensorData),
              value = Proto().bytes(1, tag).message(8, tensor).message(9, metadata);
  return file_.append(
      record_of(event(time, step).message(kSummary, Proto().message(1, value)).text()));
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;  // then there are none
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && is_plain_file(at->path()))
      files.push_back(at->path());
  }
  std::ranges::sort(files);
  return files;
}

std::string as_code(std::string_view text) {
  std::string code;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    code += concat("    ", text.substr(0, end), '\n');
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return code;
}

std::string next_event_file(const std::string& folder, double time, std::int64_t after_step) {
  auto seconds = static_cast<std::int64_t>(time);
  for (const std::string& path : event_files(folder)) {
    const KeptRecords kept = kept_records(path, after_step);
    std::error_code error;
    if (kept.count < 2) {  // nothing, or the version alone
      fs::remove(path, error);
    } else {
      if (kept.bytes < InputFile(path).bytes()) fs::resize_file(path, kept.bytes, error);
      seconds = std::max(seconds, time_of(path) + 1);
    }
    AXONN_CHECK(!error, "cannot cut ", path, " behind step ", after_step, ": ",
                cause_and_remedy(error.value()));
  }
  std::string host(256, '\0');
  if (::gethostname(host.data(), host.size() - 1) != 0) host = "unknown";
  return fmt::format("{}/{}{:010}.{}.{}.0{}", folder, kPrefix, seconds, host.c_str(), ::getpid(),
                     kSuffix);
}

}  // namespace axonn
