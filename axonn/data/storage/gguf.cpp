#include "axonn/data/storage/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "axonn/data/storage/gguf_blocks.h"
#include "axonn/data/storage/gguf_quantize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/gguf_file.h"

namespace axonn {

namespace {

constexpr std::uint32_t kGgufVersion = 3;
constexpr std::int64_t kGgufAlignment = 32;
// As for safetensors: large compared with a checkpoint's pieces, which are read whole.
constexpr std::int64_t kGgufElementsAtOnce = 32 << 20;

std::int64_t gguf_aligned(std::int64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

template <typename T>
void put_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& out, const std::string& text) {
  put_number<std::uint64_t>(out, text.size());
  out += text;
}

struct ValueWriter {
  std::string& out;

  void operator()(std::uint32_t value) const { both(GgufValueType::u32, value); }
  void operator()(float value) const { both(GgufValueType::f32, value); }
  void operator()(bool value) const { both(GgufValueType::boolean, static_cast<char>(value)); }
  void operator()(const std::string& value) const {
    put_number(out, GgufValueType::text);
    put_text(out, value);
  }
  void operator()(const std::vector<std::int32_t>& values) const {
    array(GgufValueType::i32, values);
  }
  void operator()(const std::vector<float>& values) const { array(GgufValueType::f32, values); }
  void operator()(const std::vector<bool>& values) const {
    begin_array(GgufValueType::boolean, values.size());
    for (const bool value : values) put_number(out, static_cast<char>(value));
  }
  void operator()(const std::vector<std::string>& values) const {
    begin_array(GgufValueType::text, values.size());
    for (const std::string& value : values) put_text(out, value);
  }

 private:
  template <typename T>
  void both(GgufValueType type, T value) const {
    put_number(out, type);
    put_number(out, value);
  }
  void begin_array(GgufValueType type, std::uint64_t count) const {
    put_number(out, GgufValueType::list);
    put_number(out, type);
    put_number(out, count);
  }
  template <typename T>
  void array(GgufValueType type, const std::vector<T>& values) const {
    begin_array(type, values.size());
    for (const T value : values) put_number(out, value);
  }
};

std::string gguf_header(const GgufKeys& keys, std::span<const GgufTensor> tensors) {
  std::string out = "GGUF";
  put_number(out, kGgufVersion);
  put_number<std::uint64_t>(out, tensors.size());
  put_number<std::uint64_t>(out, keys.size());
  for (const auto& [key, value] : keys) {
    put_text(out, key);
    std::visit(ValueWriter{out}, value);
  }
  std::int64_t place = 0;
  for (const GgufTensor& tensor : tensors) {
    const std::vector<std::int64_t> sizes = tensor.sizes();
    put_text(out, tensor.name);
    put_number(out, static_cast<std::uint32_t>(sizes.size()));
    for (const std::int64_t size : sizes) put_number(out, size);
    put_number(out, tensor.type);
    put_number(out, place);
    place += gguf_aligned(tensor.bytes());
  }
  out.resize(gguf_aligned(std::ssize(out)), '\0');
  return out;
}

StoredType plain_type(GgufType type) {
  if (type == GgufType::bf16) return StoredType::bf16;
  return type == GgufType::f16 ? StoredType::f16 : StoredType::f32;
}

/// Writes tensors behind the header.
class GgufWriter {
 public:
  GgufWriter(AtomicFile& file, ParameterSource& source, const WriteProgress& progress)
      : file_(file), source_(source), progress_(progress) {}

  void write(const GgufTensor& tensor) {
    if (!tensor.values.empty()) {
      put(tensor, tensor.values, tensor.parameter.cols);
    } else if (tensor.heads.count > 0) {
      write_heads(tensor);
    } else {
      for (std::int64_t turn = 0; turn < tensor.turns; ++turn) {
        write(tensor, tensor.parameter, turn, 0);
        std::int64_t before = tensor.parameter.rows;
        for (const StoredParameter& part : tensor.more) {
          write(tensor, part, turn, before);
          before += part.rows;
        }
      }
    }
    bytes_.assign(gguf_aligned(tensor.bytes()) - tensor.bytes(), std::byte{0});
    file_.append(bytes_);
  }

 private:
  /// Writes a part of the parameter's rows, of which there are GgufTensor::turns. `before`: rows of
  /// the tensor's other parameters before them.
  void write(const GgufTensor& tensor, const StoredParameter& part, std::int64_t turn,
             std::int64_t before) {
    const std::int64_t rows = part.rows / tensor.turns;
    const auto& [groups, each, width, first, columns] = tensor.tiles;
    if (groups == 1 || columns || first >= before + part.rows)
      return write_rows(tensor, part, turn * rows, (turn + 1) * rows);
    write_rows(tensor, part, 0, first - before);
    for (std::int64_t unit = 0; unit < groups * each; ++unit) {
      const std::int64_t row = first - before + (unit % groups * each + unit / groups) * width;
      write_rows(tensor, part, row, row + width);
    }
  }
  void write_rows(const GgufTensor& tensor, const StoredParameter& part, std::int64_t begin,
                  std::int64_t end) {
    const auto& [name, rows, cols] = part;
    std::int64_t at_once = std::max<std::int64_t>(1, kGgufElementsAtOnce / cols);
    if (const std::int64_t head = tensor.interleaved; head > 0)
      at_once = std::max(head, at_once / head * head);
    for (std::int64_t row = begin; row < end; row += at_once) {
      const std::int64_t count = std::min(at_once, end - row);
      values_.resize(count * cols);
      source_.read_slice(
          name, {.rows = rows, .cols = cols, .begin = row * cols, .end = (row + count) * cols},
          values_);
      for (float& value : values_) {
        if (tensor.plus != 0) value += tensor.plus;
        if (tensor.decays) value = -std::exp(value);
      }
      put(tensor, ordered(tensor, cols), cols);
    }
  }
  /// values_, with the columns, or the rows of whole heads, in the tensor's order.
  std::span<const float> ordered(const GgufTensor& tensor, std::int64_t cols) {
    if (tensor.interleaved > 0) return interleaved(tensor.interleaved, cols);
    const auto& [groups, each, width, first, columns] = tensor.tiles;
    if (!columns) return values_;
    turned_ = values_;
    for (std::int64_t row = 0; row < std::ssize(values_); row += cols)
      for (std::int64_t unit = 0; unit < groups * each; ++unit)
        std::copy_n(values_.begin() + row + first + (unit % groups * each + unit / groups) * width,
                    width, turned_.begin() + row + first + unit * width);
    return turned_;
  }
  /// Writes the rows of GgufTensor::heads.
  void write_heads(const GgufTensor& tensor) {
    const auto& [name, rows, cols] = tensor.parameter;
    const auto& [of, first, count, transposed] = tensor.heads;
    values_.resize(count * cols);
    turned_.resize(values_.size());
    for (std::int64_t row = first; row < rows; row += of) {
      source_.read_slice(
          name, {.rows = rows, .cols = cols, .begin = row * cols, .end = (row + count) * cols},
          values_);
      if (!transposed) {
        put(tensor, values_, cols);
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < cols; ++j) turned_[j * count + i] = values_[i * cols + j];
      put(tensor, turned_, count);
    }
  }
  /// The rows of values_, of whole heads, in the order of GgufTensor::interleaved.
  std::span<const float> interleaved(std::int64_t head, std::int64_t cols) {
    turned_.resize(values_.size());
    const std::int64_t rows = std::ssize(values_) / cols, half = head / 2;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = row / head * head, at = row % head;
      const std::int64_t from = begin + at % 2 * half + at / 2;
      std::copy_n(values_.begin() + from * cols, cols, turned_.begin() + row * cols);
    }
    return turned_;
  }

  void put(const GgufTensor& tensor, std::span<const float> values, std::int64_t cols) {
    check_range(tensor, values);
    bytes_.resize(std::ssize(values) / cols * row_bytes(tensor.type, cols));
    if (is_quantized(tensor.type))
      find_gguf_quantizer(static_cast<std::uint32_t>(tensor.type))(values, bytes_);
    else
      from_floats(plain_type(tensor.type), values, bytes_);
    file_.append(bytes_);
    if (progress_) progress_(std::ssize(bytes_));
  }

  /// A scale of blocks is an f16, and some types have the least value as one.
  static void check_range(const GgufTensor& tensor, std::span<const float> values) {
    const bool quantized = is_quantized(tensor.type);
    if (tensor.type != GgufType::f16 && !quantized) return;
    // 65520, halfway from 65504 to 2^16, rounds to infinity.
    const float most = tensor.type == GgufType::q8_0 ? 65520.f * 127 : 65520.f;
    for (const float value : values)
      if (!(std::abs(value) < most) && (quantized || std::isfinite(value)))
        refuse(tensor.name, " has the value ", value, ", which ", name_of(tensor.type),
               " cannot hold; use bf16 or f32");
  }

  AtomicFile& file_;
  ParameterSource& source_;
  const WriteProgress& progress_;
  std::vector<float> values_, turned_;
  std::vector<std::byte> bytes_;
};

}  // namespace

namespace {

const GgufBlocks& blocks_of(GgufType type) {
  return *find_gguf_blocks(static_cast<std::uint32_t>(type));
}

}  // namespace

bool is_quantized(GgufType type) { return blocks_of(type).values > 1; }

std::string_view name_of(GgufType type) { return blocks_of(type).name; }

GgufType type_for_rows(GgufType type, std::int64_t cols) {
  if (cols % blocks_of(type).values == 0) return type;
  if (type == GgufType::q3_k) return type_for_rows(GgufType::q4_0, cols);
  if (type == GgufType::q4_k) return type_for_rows(GgufType::q5_0, cols);
  if (type == GgufType::q5_k) return type_for_rows(GgufType::q5_1, cols);
  if (type == GgufType::q6_k) return type_for_rows(GgufType::q8_0, cols);
  return GgufType::f16;
}

std::int64_t row_bytes(GgufType type, std::int64_t cols) {
  const GgufBlocks& blocks = blocks_of(type);
  AXONN_CHECK(cols % blocks.values == 0, blocks.name, ": ", cols, " columns are not blocks of ",
              blocks.values);
  return cols / blocks.values * blocks.bytes;
}

std::vector<std::int64_t> GgufTensor::sizes() const {
  if (heads.count > 0) {
    std::vector<std::int64_t> all{parameter.cols, heads.count, parameter.rows / heads.of};
    if (heads.transposed) std::swap(all[0], all[1]);
    return all;
  }
  std::vector<std::int64_t> all;
  if (!vector) all.push_back(parameter.cols);
  all.push_back(parameter.rows);
  if (stacked)
    all.push_back(std::ssize(more) + 1);
  else
    for (const StoredParameter& part : more) all.back() += part.rows;
  return all;
}

std::int64_t GgufTensor::bytes() const {
  const std::vector<std::int64_t> all = sizes();
  std::int64_t rows = vector ? all.front() : 1;
  for (const std::int64_t size : std::span(all).subspan(1)) rows *= size;
  return rows * row_bytes(type, vector ? 1 : all.front());
}

void write_gguf(const std::string& path, const GgufKeys& keys, std::span<const GgufTensor> tensors,
                ParameterSource& source, const WriteProgress& progress) {
  AtomicFile file(path);
  const std::string header = gguf_header(keys, tensors);
  file.append(std::as_bytes(std::span(header)));
  GgufWriter writer(file, source, progress);
  for (const GgufTensor& tensor : tensors) writer.write(tensor);
  file.commit();
}

}  // namespace axonn
