// A rank holds the elements [begin, end) of a rectangle, its slice. The slice is read a few rows at
// a time. If it has all columns of the matrix, these rows are one range of the file. If columns are
// cut over ranks, those ranks need the same rows: each reads some of the rows whole, and an
// all-to-all gives every rank its columns.
#include "axonn/data/storage/safetensors/safetensors_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kBytesAtOnce = 4 << 20;   // of rows that the ranks read together
constexpr std::int64_t kBytesInCache = 1 << 19;  // read or passed to the callback at once

using Bytes = std::vector<std::byte>;

Buffer buffer_of(Bytes& bytes) { return {bytes.data(), std::ssize(bytes), DType::u8}; }

/// Of elements of T.
struct Steps {
  std::int64_t out, run;
};

/// out[i * steps.out] = run[i * steps.run].
template <typename T>
void spread(const Bytes& run, std::byte* out, const Steps& steps) {
  const std::int64_t count = std::ssize(run) / std::int64_t{sizeof(T)};
  for (std::int64_t i = 0, at = 0; at < count; ++i, at += steps.run)
    std::memcpy(out + i * steps.out * std::int64_t{sizeof(T)}, run.data() + at * sizeof(T),
                sizeof(T));
}

using Stored = SafetensorsSource::Stored;

/// Loads the slices of one matrix. Elements keep their stored type. The loaders of all matrices
/// share a buffer, `bytes`, and the first `fault` of a file. After a fault they read no more, but
/// complete their exchanges, which other ranks wait for.
struct SliceLoader {
  const Stored& stored;
  Communicator* across;
  Bytes& bytes;
  std::string& fault;
  std::function<void(std::int64_t offset, std::span<const std::byte>)> take;
  std::int64_t each = bytes_of(stored.type());  ///< bytes of an element
  std::int64_t bytes_read = 0;

  void load(const Slice& slice) {
    if (slice.count() <= 0) return;
    const bool whole = !stored.by_columns && slice.cols == stored.cols;
    if (whole && alone()) return load_whole_rows(slice);
    const std::int64_t at_once = std::max<std::int64_t>(1, kBytesAtOnce / (slice.cols * each)),
                       last = (slice.end - 1) / slice.cols;
    for (std::int64_t row = slice.begin / slice.cols; row <= last; row += at_once) {
      const std::int64_t count = std::min(at_once, last + 1 - row),
                         end = std::min(slice.end, (row + count) * slice.cols);
      const Bytes rows = rows_of(slice, slice.row + row, count);
      for (std::int64_t at = std::max(slice.begin, row * slice.cols), next; at < end; at = next) {
        next = std::min(end, at + kBytesInCache / each);
        take(slice.offset + at - slice.begin,
             std::span(rows).subspan((at - row * slice.cols) * each, (next - at) * each));
      }
    }
  }

  bool alone() const { return !across || across->size() == 1; }

  /// Fills `out` with elements of the matrix from `element` on, row after row.
  void read(std::int64_t element, std::span<std::byte> out) {
    if (!stored.packed && stored.row_step == stored.cols && stored.run == 0)
      return fill(stored.first + element, out);
    for (std::int64_t row = element / stored.cols, col = element % stored.cols; !out.empty();
         ++row, col = 0) {
      const auto part = static_cast<std::size_t>(stored.cols - col) * each;
      const auto here = out.first(std::min(out.size(), part));
      const std::int64_t begin = stored.begin_of(row);
      stored.packed ? unpack(begin, col, here) : fill(begin + col, here);
      out = out.subspan(here.size());
    }
  }

  /// Fills `out` with elements of the tensor.
  void fill(std::int64_t element, std::span<std::byte> out) {
    note_fault([&] {
      stored.tensor.file->read(*stored.tensor.entry, element * each, out);
      return std::ssize(out);
    });
  }
  /// Fills it with elements of a packed row.
  void unpack(std::int64_t row, std::int64_t col, std::span<std::byte> out) {
    note_fault([&] { return stored.packed->read(row, col, out); });
  }

  /// Counts the bytes that are read, unless there was a fault.
  void note_fault(const auto& read_some) {
    if (!fault.empty()) return;
    try {
      bytes_read += read_some();
    } catch (const UsageError& error) {
      fault = error.what();
    }
  }

  /// For a slice that is one range of the file. It passes on pieces small enough to stay in cache.
  void load_whole_rows(const Slice& slice) {
    const std::int64_t at_once = kBytesInCache / each;
    for (std::int64_t at = slice.begin; at < slice.end; at += at_once) {
      bytes.resize(std::min(at_once, slice.end - at) * each);
      read(slice.row * stored.cols + at, bytes);
      take(slice.offset + at - slice.begin, bytes);
    }
  }

  /// Returns (count, slice.cols): the slice's columns of rows [first, first + count) of the matrix.
  Bytes rows_of(const Slice& slice, std::int64_t first, std::int64_t count) {
    if (stored.by_columns) return columns_of(slice, first, count);
    if (!alone()) return together(slice, first, count);
    const std::int64_t part = slice.cols * each;
    Bytes out(count * part);
    for (std::int64_t row = 0; row < count; ++row)
      read((first + row) * stored.cols + slice.col, std::span(out).subspan(row * part, part));
    return out;
  }

  /// Each rank of `across` reads some of the rows whole.
  Bytes together(const Slice& slice, std::int64_t first, std::int64_t count) {
    const std::int64_t ways = across->size(), rows = (count + ways - 1) / ways,
                       begin = std::min(count, across->rank() * rows),
                       mine = std::min(count, begin + rows) - begin, row_bytes = stored.cols * each,
                       part = slice.cols * each;
    Bytes sent(ways * rows * part), got(sent.size());
    bytes.resize(mine * row_bytes);
    if (mine > 0) read((first + begin) * stored.cols, bytes);
    for (std::int64_t to = 0; to < ways; ++to)
      for (std::int64_t row = 0; row < mine; ++row)
        std::copy_n(bytes.begin() + row * row_bytes + to * part, part,
                    sent.begin() + (to * rows + row) * part);
    across->all_to_all(buffer_of(got), buffer_of(sent), "loading").wait();
    got.resize(count * part);
    return got;
  }

  /// For a matrix that is stored transposed: its columns lie in rows of the file.
  Bytes columns_of(const Slice& slice, std::int64_t first, std::int64_t count) {
    Bytes out(count * slice.cols * each);
    bytes.resize(((count - 1) * stored.row_step + 1) * each);
    const auto spread_one = each == 2 ? spread<std::uint16_t> : spread<std::uint32_t>;
    for (std::int64_t col = 0; col < slice.cols; ++col) {
      fill(stored.first + first * stored.row_step + (slice.col + col) * stored.col_step, bytes);
      spread_one(bytes, out.data() + col * each, {slice.cols, stored.row_step});
    }
    return out;
  }
};

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::int64_t extent : shape) text += concat(text.empty() ? "" : ", ", extent);
  return '(' + text + ')';
}

/// Adds a difference if the tensor is not this number.
void check(const SafetensorsFolder::Tensor& tensor, double wanted, Differences& differences) {
  const SafetensorsEntry& entry = *tensor.entry;
  const bool one = entry.shape.empty() || entry.shape == std::vector<std::int64_t>{1};
  if (!one || !is_float(entry.type))
    return differences.add(entry.name, " is ", text_of(entry.shape), ' ', name_of(entry.type),
                           ", wanted one number");
  Bytes bytes(bytes_of(entry.type));
  tensor.file->read(entry, 0, bytes);
  float value = 0;
  to_floats(entry.type, bytes, {&value, 1});
  // Rounding to bf16, or to F16's smallest step, 2^-24.
  if (!(std::abs(value - wanted) <= std::abs(wanted) / 256 + 0x1p-25))
    differences.add(entry.name, " is ", value, ", but models here have ", wanted);
}

/// Says where the parameter lies in a tensor of its own.
void place_alone(Stored& stored, bool transposed) {
  stored.by_columns = transposed;
  stored.row_step = transposed ? 1 : stored.cols;
  stored.col_step = transposed ? stored.rows : 1;
}

/// Says where its rows lie among those of a joined one, each of so many elements.
void place_rows(Stored& stored, const StoredName::Joined& joined, std::int64_t row) {
  stored.first = joined.first * row;
  stored.row_step = joined.step * row;
  if (joined.turns == 1) return;
  stored.run = stored.rows / joined.turns;
  stored.next_run = joined.rows / joined.turns * row;
}

/// Says where it lies in a joined one.
void place_joined(Stored& stored, const StoredName::Joined& joined) {
  const std::int64_t cols = stored.cols;
  // The elements of a column with others between them are read together.
  stored.by_columns = joined.transposed || (cols == 1 && joined.step > 1);
  if (!joined.transposed || cols == 1) return place_rows(stored, joined, cols);
  stored.first = joined.first / joined.rows * joined.rows * cols + joined.first % joined.rows;
  stored.row_step = joined.step;
  stored.col_step = joined.rows;
}

/// The shape of a tensor; `joined`: null if it is the matrix alone. Vectors have one extent fewer.
std::vector<std::int64_t> shape_of(const Stored& wanted, const StoredName::Joined* joined) {
  std::vector<std::int64_t> shape;
  if (joined && joined->outer > 0) shape.push_back(joined->outer);
  shape.push_back(joined ? joined->rows : wanted.rows);
  if (wanted.cols == 1) return shape;
  shape.push_back(wanted.cols);
  if (joined ? joined->transposed : wanted.by_columns)
    std::swap(shape.back(), shape[shape.size() - 2]);
  return shape;
}

/// Adds a difference for another shape, and for a type that cannot be read. `joined`: null if the
/// tensor is the matrix alone.
void check(const SafetensorsEntry& entry, const Stored& wanted, const StoredName& name,
           const StoredName::Joined* joined, Differences& differences) {
  std::vector<std::int64_t> shape = shape_of(wanted, joined);
  if (name.depthwise && !joined) shape.insert(shape.begin() + 1, 1);
  std::vector<std::int64_t> column = shape;
  column.insert(wanted.by_columns && !joined ? column.begin() : column.end(), 1);
  if (entry.shape != shape && !(wanted.cols == 1 && entry.shape == column))
    differences.add(entry.name, " is ", text_of(entry.shape), ", wanted ", text_of(shape));
  if (!is_float(entry.type))
    differences.add(entry.name, " is ", name_of(entry.type),
                    ", which cannot be read; F32, BF16 and F16 can");
}

}  // namespace

SafetensorsSource::SafetensorsSource(SafetensorsFolder folder,
                                     std::vector<StoredParameter> parameters,
                                     const TensorNames& names)
    : ParameterSource(folder.path(), std::move(parameters)), folder_(std::move(folder)) {
  Differences differences;
  std::set<std::string, std::less<>> known;
  for (const auto& [parameter, rows, cols] : this->parameters()) {
    const StoredName name = names.of(parameter);
    Stored& stored = stored_[parameter];
    stored = {.tensor = {}, .rows = rows, .cols = cols};
    const auto find = [&](const std::vector<std::string>& spellings) {
      for (const std::string& one : spellings)
        if (!stored.tensor.entry) stored.tensor = folder_.find(one);
      return stored.tensor.entry != nullptr;
    };
    if (find_packed(stored, name, differences)) {
      known.insert(stored.packed->tensors().begin(), stored.packed->tensors().end());
      continue;
    }
    const bool alone = find(name.names);
    if (!alone && !find(name.joined.names)) {
      differences.add("there is no ", (name.joined.usual ? name.joined.names : name.names).front());
      continue;
    }
    alone ? place_alone(stored, name.transposed) : place_joined(stored, name.joined);
    known.insert(stored.tensor.entry->name);
    check(*stored.tensor.entry, stored, name, alone ? nullptr : &name.joined, differences);
  }
  for (const auto& [spellings, value] : names.numbers)
    for (const std::string& spelling : spellings) {
      const SafetensorsFolder::Tensor tensor = folder_.find(spelling);
      if (tensor.entry && known.insert(spelling).second) check(tensor, value, differences);
    }
  for (const auto& [name, tensor] : folder_.tensors())
    if (!known.contains(name) && !names.passed_over(name))
      differences.add(name, ' ', text_of(tensor.entry->shape), " is not known");
  differences.refuse_if_any(
      concat(path(), " does not hold the tensors that its ", names.config, " describes"));
}

/// Whether the folder has the parameter, alone or joined with others, in packed tensors.
bool SafetensorsSource::find_packed(Stored& stored, const StoredName& name,
                                    Differences& differences) const {
  const PackedShape alone{.rows = stored.rows, .cols = stored.cols, .transposed = name.transposed};
  for (const std::string& one : name.names)
    if ((stored.packed = axonn::find_packed(folder_, one, alone, differences))) {
      stored.row_step = 1;
      return true;
    }
  const StoredName::Joined& joined = name.joined;
  const PackedShape whole{.outer = joined.outer, .rows = joined.rows, .cols = stored.cols};
  for (const std::string& one : joined.names)
    if ((stored.packed = axonn::find_packed(folder_, one, whole, differences))) {
      place_rows(stored, joined, 1);
      return true;
    }
  return false;
}

Quantization SafetensorsSource::stored_as(const std::string& parameter) const {
  const auto found = stored_.find(parameter);
  if (found == stored_.end() || !found->second.packed) return Quantization::none;
  return found->second.packed->kind();
}

std::optional<std::int64_t> SafetensorsSource::read_records(const std::string& parameter,
                                                            Quantization kind, std::int64_t first,
                                                            std::span<std::byte> records) {
  if (kind == Quantization::none || stored_as(parameter) != kind) return {};
  const Stored& stored = stored_.find(parameter)->second;
  const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
  const std::int64_t bytes = form.record_bytes(), each = stored.cols / form.unit;
  std::int64_t read = 0;
  for (auto rest = records; !rest.empty();) {
    const std::int64_t block = first % each;
    const auto part = rest.first(std::min(std::ssize(rest), (each - block) * bytes));
    read += stored.packed->read_records(stored.begin_of(first / each), block, part);
    first += std::ssize(part) / bytes;
    rest = rest.subspan(part.size());
  }
  if (!has_finite_factors(form, records))
    refuse(path(), ": ", parameter, " has a block whose factor is not finite; the file is damaged");
  return read;
}

std::int64_t SafetensorsSource::read(std::span<const SliceRequest> wanted, const TakeValues& take) {
  std::int64_t bytes_read = 0;
  Bytes bytes;
  std::string fault;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = stored_.find(wanted[i].parameter);
    AXONN_CHECK(found != stored_.end() && wanted[i].kind == "master", path(), " has no ",
                wanted[i].kind, " of ", wanted[i].parameter);
    const StoredType type = found->second.type();
    SliceLoader loader{found->second, wanted[i].across, bytes, fault,
                       [&](std::int64_t offset, std::span<const std::byte> values) {
                         take(i, offset, type, values);
                       }};
    for (const Slice& slice : wanted[i].slices) loader.load(slice);
    bytes_read += loader.bytes_read;
  }
  if (!fault.empty()) refuse(fault);
  return bytes_read;
}

}  // namespace axonn
