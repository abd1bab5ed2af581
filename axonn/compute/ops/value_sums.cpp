#include "axonn/compute/ops/value_sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "axonn/compute/tensor/address.h"

namespace axonn {

namespace {

/// Lines that a thread takes at least: less is done sooner than a thread begins.
constexpr std::int64_t kLinesOfThread = 1024;

/// Odd, of random bits, so that no change of two words leaves the sum as it was.
constexpr std::array<std::uint32_t, 16> kFactors{
    0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f, 0x165667b1, 0xd3a2646d, 0xfd7046c5, 0xb55a4f09,
    0x8da6b343, 0xd8163841, 0xcb1ab31f, 0x6c62272f, 0x7feb352d, 0x846ca68b, 0xc4ceb9fd, 0xff51afd7};

std::uint64_t sum_of(const std::byte* line) {
  std::array<std::uint32_t, kFactors.size()> words;
  std::memcpy(words.data(), line, ValueSums::kLine);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kFactors.size(); ++i) sum += std::uint64_t{words[i]} * kFactors[i];
  return sum;
}

/// Of the bytes [from, to) of a line.
std::uint64_t sum_of(const std::byte* line, std::int64_t from, std::int64_t to) {
  if (from == 0 && to == ValueSums::kLine) return sum_of(line);
  std::array<std::byte, ValueSums::kLine> part{};
  std::memcpy(part.data() + from, line + from, to - from);
  return sum_of(part.data());
}

}  // namespace

ValueSums::ValueSums(Arena& arena, int threads) : arena_(arena), threads_(threads) {
  arena_.on_allocate([this](void* data, std::int64_t bytes) { forget(data, bytes); });
}

ValueSums::~ValueSums() { arena_.on_allocate({}); }

void ValueSums::follow_arena() {
  std::vector<Segment> now;
  for (const auto& [memory, bytes] : arena_.segments()) {
    const auto begin = reinterpret_cast<Address>(memory), end = begin + bytes;
    const auto old = std::ranges::find_if(
        segments_, [&](const Segment& one) { return one.begin == begin && one.end == end; });
    if (old != segments_.end()) {
      now.push_back(std::move(*old));
      continue;
    }
    const std::size_t lines = (bytes + kLine - 1) / kLine;
    now.push_back({begin, end, std::vector<std::uint64_t>(lines), std::vector<std::uint8_t>(lines),
                   std::vector<std::uint8_t>(lines)});
  }
  segments_ = std::move(now);
  device_calls_ = arena_.stats().device_calls;
}

ValueSums::Segment* ValueSums::segment_of(const void* data) {
  const auto at = reinterpret_cast<Address>(data);
  if (device_calls_ != arena_.stats().device_calls || segments_.size() != arena_.segments().size())
    follow_arena();
  const auto found = std::ranges::find_if(
      segments_, [&](const Segment& one) { return one.begin <= at && at < one.end; });
  return found == segments_.end() ? nullptr : &*found;
}

template <typename F>
void ValueSums::for_lines(const Segment& segment, Address begin, std::int64_t bytes,
                          const F& f) const {
  const auto offset = static_cast<std::int64_t>(begin - segment.begin);
  const std::int64_t first = offset / kLine, last = (offset + bytes - 1) / kLine;
  const auto one = [&](std::int64_t line) {
    f(line, std::max<std::int64_t>(0, offset - line * kLine),
      std::min(kLine, offset + bytes - line * kLine));
  };
  const int threads =
      static_cast<int>(std::clamp<std::int64_t>((last - first) / kLinesOfThread, 1, threads_));
  if (threads == 1) {
    for (std::int64_t line = first; line <= last; ++line) one(line);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t line = first; line <= last; ++line) one(line);
}

void ValueSums::keep(const View& view) {
  for_runs(view, [&](const void* data, std::int64_t bytes) { keep(data, bytes); });
}

void ValueSums::keep(const void* data, std::int64_t bytes) {
  Segment* const segment = bytes > 0 ? segment_of(data) : nullptr;
  if (!segment) return;
  const auto* const memory = reinterpret_cast<const std::byte*>(segment->begin);
  for_lines(*segment, reinterpret_cast<Address>(data), bytes,
            [&](std::int64_t line, std::int64_t from, std::int64_t to) {
              const std::int64_t was_from = segment->from[line], was_to = segment->to[line];
              if (was_from < was_to && was_from <= to && from <= was_to) {
                from = std::min(from, was_from);
                to = std::max(to, was_to);
              }
              segment->from[line] = static_cast<std::uint8_t>(from);
              segment->to[line] = static_cast<std::uint8_t>(to);
              segment->sums[line] = sum_of(memory + line * kLine, from, to);
            });
}

void ValueSums::forget(const void* data, std::int64_t bytes) {
  Segment* const segment = bytes > 0 ? segment_of(data) : nullptr;
  if (!segment) return;
  for_lines(*segment, reinterpret_cast<Address>(data), bytes,
            [&](std::int64_t line, std::int64_t, std::int64_t) {
              segment->from[line] = segment->to[line] = 0;
            });
}

void ValueSums::hold(const void* data, std::int64_t bytes) {
  if (bytes > 0) held_.emplace_back(reinterpret_cast<Address>(data), bytes);
}

void ValueSums::release(const void* data, std::int64_t bytes) {
  const auto found = std::ranges::find(held_, std::pair{reinterpret_cast<Address>(data), bytes});
  if (found != held_.end()) held_.erase(found);
}

bool ValueSums::is_held(Address begin, std::int64_t bytes) const {
  return std::ranges::any_of(held_, [&](const auto& one) {
    return one.first < begin + bytes && begin < one.first + one.second;
  });
}

void ValueSums::repair_line(Segment& segment, std::int64_t line, Found& found) {
  auto* const memory = reinterpret_cast<std::byte*>(segment.begin) + line * kLine;
  const std::int64_t from = segment.from[line], to = segment.to[line];
  std::int64_t right = -1;  // the bit to flip
  for (std::int64_t bit = 8 * from; bit < 8 * to; ++bit) {
    const std::byte mask{static_cast<std::uint8_t>(1 << bit % 8)};
    memory[bit / 8] ^= mask;
    if (sum_of(memory, from, to) == segment.sums[line]) right = right < 0 ? bit : 8 * kLine;
    memory[bit / 8] ^= mask;
  }
  if (right < 0 || right == 8 * kLine) {
    ++found.lost;
    return;
  }
  memory[right / 8] ^= std::byte{static_cast<std::uint8_t>(1 << right % 8)};
  ++found.repaired;
}

ValueSums::Found ValueSums::compare(const View& view) {
  Found all;
  for_runs(view, [&](const void* data, std::int64_t bytes) {
    const Found one = compare(data, bytes);
    all.repaired += one.repaired;
    all.lost += one.lost;
  });
  return all;
}

ValueSums::Found ValueSums::compare_all() {
  Found all;
  for (const auto& [memory, bytes] : arena_.segments()) {
    const Found one = compare(memory, bytes);
    all.repaired += one.repaired;
    all.lost += one.lost;
  }
  return all;
}

ValueSums::Found ValueSums::compare(const void* data, std::int64_t bytes) {
  Segment* const segment = bytes > 0 ? segment_of(data) : nullptr;
  Found found;
  if (!segment) return found;
  const auto* const memory = reinterpret_cast<const std::byte*>(segment->begin);
  for_lines(*segment, reinterpret_cast<Address>(data), bytes,
            [&](std::int64_t line, std::int64_t, std::int64_t) {
              const std::int64_t from = segment->from[line], to = segment->to[line];
              if (from == to || sum_of(memory + line * kLine, from, to) == segment->sums[line])
                return;
#pragma omp critical(axonn_value_sums)
              repair_line(*segment, line, found);
            });
  if (found.repaired > 0 && is_held(reinterpret_cast<Address>(data), bytes))
    found.lost += std::exchange(found.repaired, 0);
  return found;
}

}  // namespace axonn
