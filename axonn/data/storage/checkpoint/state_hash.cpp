#include "axonn/data/storage/checkpoint/state_hash.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/sha256.h"

namespace axonn {

namespace {

/// Elements that are read at once: 4 MiB.
constexpr std::int64_t kAtOnce = 1 << 20;

/// What a checkpoint holds, by kind and name. A kind that holds a row or a column of a parameter
/// alone, such as Adafactor's, is an item of this shape.
std::vector<StateItem> items_of(const CheckpointIndex& index) {
  std::map<std::pair<std::string, std::string>, StateItem> items;
  for (const StoredFile& file : index.files)
    for (const StoredBlock& block : file.blocks)
      for (const auto& [kind, offset] : block.offsets)
        for (const StoredSlice& slice : block.slices) {
          const std::string& name = index.parameters[slice.parameter].name;
          StateItem& item =
              items.try_emplace({kind, name}, StateItem{.kind = kind, .parameter = name})
                  .first->second;
          item.rows = std::max(item.rows, slice.part.row + slice.part.rows);
          item.cols = std::max(item.cols, slice.part.col + slice.part.cols);
        }
  std::vector<StateItem> sorted;
  for (auto& [key, item] : items) sorted.push_back(std::move(item));
  return sorted;
}

template <typename T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

void append(Sha256& hash, std::string_view text) {
  hash.append(bytes_of(std::span(text.data(), text.size())));
}

/// Calls f(first, count) for each part of an item.
void for_parts(const StateItem& item, const auto& f) {
  const std::int64_t count = item.rows * item.cols;
  for (std::int64_t first = 0; first < count; first += kAtOnce)
    f(first, std::min(kAtOnce, count - first));
}

}  // namespace

StateValues::StateValues(const CheckpointReader& reader)
    : items_(items_of(reader.index())), source_(reader, reader.index().parameters) {}

void StateValues::read(const StateItem& item, std::int64_t first, std::span<float> to) {
  const Slice slice{.row = 0,
                    .rows = item.rows,
                    .col = 0,
                    .cols = item.cols,
                    .begin = first,
                    .end = first + std::ssize(to)};
  const SliceRequest wanted{.parameter = item.parameter, .kind = item.kind, .slices = {slice}};
  source_.read({&wanted, 1}, [&](std::size_t, std::int64_t offset, StoredType type, auto values) {
    to_floats(type, values, to.subspan(offset, values.size() / axonn::bytes_of(type)));
  });
}

StateHash hash_of_state(const CheckpointReader& reader) {
  StateValues values(reader);
  std::map<std::string, Sha256> hashes;
  std::vector<float> part;
  for (const StateItem& item : values.items()) {
    Sha256& hash = hashes[item.kind];
    append(hash, item.parameter);
    append(hash, std::string_view("\0", 1));
    const std::int64_t shape[] = {item.rows, item.cols};
    hash.append(bytes_of(std::span<const std::int64_t>(shape)));
    for_parts(item, [&](std::int64_t first, std::int64_t count) {
      part.resize(count);
      values.read(item, first, part);
      hash.append(bytes_of(std::span<const float>(part)));
    });
  }
  StateHash result{.step = reader.step()};
  Sha256 state;
  for (auto& [kind, hash] : hashes) {
    result.kinds[kind] = hash.finish();
    append(state, concat(kind, ' ', result.kinds[kind], '\n'));
  }
  result.state = state.finish();
  return result;
}

std::vector<StateDifference> differences(const CheckpointReader& a, const CheckpointReader& b) {
  StateValues of_a(a), of_b(b);
  if (of_a.items() != of_b.items())
    refuse(a.folder(), " and ", b.folder(), " hold other parameters, or another state of them, so ",
           "they cannot be compared value by value");
  std::map<std::string, StateDifference> all;
  std::vector<float> mine, other;
  for (const StateItem& item : of_a.items()) {
    StateDifference& difference = all[item.kind];
    difference.kind = item.kind;
    for_parts(item, [&](std::int64_t first, std::int64_t count) {
      mine.resize(count);
      other.resize(count);
      of_a.read(item, first, mine);
      of_b.read(item, first, other);
      difference.values += count;
      for (std::int64_t i = 0; i < count; ++i) {
        if (std::bit_cast<std::uint32_t>(mine[i]) == std::bit_cast<std::uint32_t>(other[i]))
          continue;
        ++difference.different;
        difference.zeros += mine[i] == 0 && other[i] == 0;
        const double size = std::abs(double{mine[i]} - other[i]);
        if (!(size <= difference.largest)) difference.largest = size;
      }
    });
  }
  std::vector<StateDifference> result;
  for (auto& [kind, difference] : all) result.push_back(std::move(difference));
  return result;
}

}  // namespace axonn
