#include "axonn/data/storage/write_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"

namespace axonn {

namespace {

// Large compared with kPieceBytes: a read from a checkpoint fetches the pieces at both ends whole.
constexpr std::int64_t kElementsAtOnce = 32 << 20;
constexpr std::int64_t kElementsOfStrip = 1 << 20;  // converted and written while in cache

std::vector<std::int64_t> shape_of(const PlannedTensor& tensor) {
  const std::int64_t rows = tensor.rows(), cols = tensor.parameter.cols;
  if (tensor.number) return {};
  std::vector<std::int64_t> shape{tensor.outer > 0 ? rows / tensor.outer : rows};
  if (!tensor.vector) shape.insert(tensor.transposed ? shape.begin() : shape.end(), cols);
  if (tensor.outer > 0) shape.insert(shape.begin(), tensor.outer);
  if (tensor.depthwise) shape.insert(shape.begin() + 1, 1);
  return shape;
}

constexpr std::int64_t kNf4Block = 64, kNf4Values = 16;
constexpr std::uint8_t kCodeOfZero = 7;

std::int64_t blocks_of_nf4(std::int64_t values) { return (values + kNf4Block - 1) / kNf4Block; }

/// What bitsandbytes says of the codes, in its own spelling.
std::string nf4_state(const PlannedTensor& tensor) {
  const char* const type = tensor.type == StoredType::bf16  ? "bfloat16"
                           : tensor.type == StoredType::f16 ? "float16"
                                                            : "float32";
  return fmt::format(
      R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "{}", "shape": [{}, {}]}})", kNf4Block,
      type, tensor.rows(), tensor.parameter.cols);
}

/// The tensors of the file for a planned one, in their order.
std::vector<SafetensorsEntry> entries_of(const PlannedTensor& tensor) {
  if (!tensor.nf4) return {{.name = tensor.name, .type = tensor.type, .shape = shape_of(tensor)}};
  const std::int64_t count = tensor.rows() * tensor.parameter.cols;
  const auto entry = [&](const char* end, StoredType type, std::vector<std::int64_t> shape) {
    return SafetensorsEntry{.name = tensor.name + end, .type = type, .shape = std::move(shape)};
  };
  return {entry("", StoredType::u8, {(count + 1) / 2, 1}),
          entry(".absmax", StoredType::f32, {blocks_of_nf4(count)}),
          entry(".quant_map", StoredType::f32, {kNf4Values}),
          entry(".quant_state.bitsandbytes__nf4", StoredType::u8, {std::ssize(nf4_state(tensor))})};
}

/// Whether a finite number becomes infinite in F16: 65520, halfway from 65504 to 2^16, rounds up.
bool beyond_f16(float value) { return std::abs(value) >= 65520 && std::isfinite(value); }

/// Writes tensors to a file and computes its checksums.
class TensorWriter {
 public:
  TensorWriter(const std::string& path, ParameterSource& source, const WriteProgress& progress)
      : file_(path), source_(source), progress_(progress) {}

  void append(std::span<const std::byte> bytes) {
    hasher_.append(bytes);
    file_.append(bytes);
  }

  void write(const PlannedTensor& tensor) {
    if (tensor.number) return put(tensor, {&*tensor.number, 1});
    if (tensor.nf4) return write_nf4(tensor);
    std::vector<StoredParameter> all{tensor.parameter};
    all.insert(all.end(), tensor.more.begin(), tensor.more.end());
    AXONN_CHECK(std::ssize(all) % tensor.together == 0, tensor.name, " has ", all.size(),
                " parts, wanted a multiple of ", tensor.together);
    const bool by_columns = tensor.transposed || tensor.together > 1;
    AXONN_CHECK(!by_columns || tensor.transposed || tensor.parameter.cols == 1, tensor.name,
                ": rows alternate, but columns are not stored one by one");
    if (by_columns)
      for (std::span<const StoredParameter> rest = all; !rest.empty();
           rest = rest.subspan(tensor.together))
        write_columns(tensor, rest.first(tensor.together));
    else
      for (std::int64_t turn = 0; turn < tensor.turns; ++turn)
        for (const StoredParameter& part : all) write_rows(tensor, part, turn);
  }

  void finish(WrittenFile& written) {
    written.bytes = file_.bytes();
    file_.finish();
    written.checksums = hasher_.finish();
  }

 private:
  /// Blocks are counted over all rows, so they are read as one run of values.
  void write_nf4(const PlannedTensor& tensor) {
    AXONN_CHECK(tensor.more.empty() && tensor.turns == 1 && tensor.outer == 0 && !tensor.vector &&
                    !tensor.transposed,
                tensor.name, " is not one matrix, which NF4 wants");
    const auto& [name, rows, cols] = tensor.parameter;
    std::vector<float> absmax;
    QuantizedValues quantized;
    for (std::int64_t begin = 0; begin < rows * cols; begin += kElementsOfStrip) {
      const std::int64_t count = std::min(kElementsOfStrip, rows * cols - begin);
      values_.resize(count);
      source_.read_slice(name, {.rows = rows, .cols = cols, .begin = begin, .end = begin + count},
                         values_);
      try {
        quantize(Quantization::nf4, kNf4Block, values_, quantized);
      } catch (const UsageError& error) {
        refuse(tensor.name, ": ", error.what());
      }
      absmax.insert(absmax.end(), quantized.factors.begin(), quantized.factors.end());
      if (count % 2 == 1) quantized.codes.push_back(kCodeOfZero);
      bytes_.resize(quantized.codes.size() / 2);
      for (std::size_t i = 0; i < bytes_.size(); ++i)
        bytes_[i] =
            static_cast<std::byte>(quantized.codes[2 * i] << 4 | quantized.codes[2 * i + 1]);
      put_bytes(bytes_);
    }
    std::array<float, kNf4Values> map;
    for (unsigned code = 0; code < map.size(); ++code) map[code] = FourBitValues::nf4(code);
    const std::string state = nf4_state(tensor);
    put_bytes(std::as_bytes(std::span(absmax)));
    put_bytes(std::as_bytes(std::span(map)));
    put_bytes(std::as_bytes(std::span(state)));
  }

  /// Writes the rows of a parameter's turn.
  void write_rows(const PlannedTensor& tensor, const StoredParameter& parameter,
                  std::int64_t turn) {
    const auto& [name, rows, cols] = parameter;
    if (rows == 0 || cols == 0) return;
    const std::int64_t each = rows / tensor.turns, end = (turn + 1) * each,
                       at_once = std::max<std::int64_t>(1, kElementsAtOnce / cols);
    for (std::int64_t row = turn * each; row < end; row += at_once) {
      const std::int64_t count = std::min(at_once, end - row);
      values_.resize(count * cols);
      source_.read_slice(
          name, {.rows = rows, .cols = cols, .begin = row * cols, .end = (row + count) * cols},
          values_);
      put_strips(tensor, values_, cols);
    }
  }

  /// Each line of the file is a column of the parameters, whose rows alternate or follow.
  void write_columns(const PlannedTensor& tensor, std::span<const StoredParameter> parameters) {
    const auto& [name, rows, cols] = parameters.front();
    if (rows == 0 || cols == 0) return;
    const std::int64_t ways = std::ssize(parameters), width = ways * rows,
                       at_once = std::max<std::int64_t>(1, kElementsAtOnce / 2 / width),
                       of_row = tensor.alternate ? ways : 1, of_way = tensor.alternate ? 1 : rows;
    for (std::int64_t col = 0; col < cols; col += at_once) {
      const std::int64_t count = std::min(at_once, cols - col);
      lines_.resize(count * width);
      values_.resize(count * rows);
      for (std::int64_t way = 0; way < ways; ++way) {
        source_.read_slice(parameters[way].name,
                           {.rows = rows, .col = col, .cols = count, .end = count * rows}, values_);
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t i = 0; i < count; ++i)
            lines_[i * width + row * of_row + way * of_way] = values_[row * count + i];
      }
      put_strips(tensor, lines_, width);
    }
  }

  /// Puts whole lines, some at a time.
  void put_strips(const PlannedTensor& tensor, std::span<const float> values, std::int64_t width) {
    const std::size_t strip = std::max<std::int64_t>(1, kElementsOfStrip / width) * width;
    for (; !values.empty(); values = values.subspan(std::min(strip, values.size())))
      put(tensor, values.first(std::min(strip, values.size())));
  }

  void put(const PlannedTensor& tensor, std::span<const float> values) {
    if (tensor.type == StoredType::f16 && std::ranges::any_of(values, beyond_f16))
      refuse(tensor.name, " has values beyond 65504, which F16 cannot hold; use BF16 or F32");
    bytes_.resize(values.size() * static_cast<std::size_t>(bytes_of(tensor.type)));
    from_floats(tensor.type, values, bytes_);
    put_bytes(bytes_);
  }

  void put_bytes(std::span<const std::byte> bytes) {
    append(bytes);
    if (progress_) progress_(std::ssize(bytes));
  }

  OutputFile file_;
  ParameterSource& source_;
  const WriteProgress& progress_;
  PieceHasher hasher_;
  std::vector<float> values_, lines_;
  std::vector<std::byte> bytes_;
};

void write_weights_index(const std::string& path,
                         std::span<const std::span<const PlannedTensor>> files,
                         std::span<const std::string> names) {
  std::int64_t total = 0;
  auto map = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const PlannedTensor& tensor : files[i]) {
      for (const SafetensorsEntry& entry : entries_of(tensor)) map[entry.name] = names[i];
      total += tensor.bytes();
    }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", std::move(map)}};
  write_text(path, index.dump(2) + "\n");
}

}  // namespace

std::int64_t PlannedTensor::bytes() const {
  const std::int64_t count = rows() * parameter.cols;
  if (!nf4) return count * bytes_of(type);
  return (count + 1) / 2 + (blocks_of_nf4(count) + kNf4Values) * bytes_of(StoredType::f32) +
         std::ssize(nf4_state(*this));
}

WrittenFile write_tensors(const std::string& path, std::span<const PlannedTensor> tensors,
                          ParameterSource& source, const WriteProgress& progress) {
  std::vector<SafetensorsEntry> entries;
  std::vector<std::size_t> first;  // entry of each tensor
  for (const PlannedTensor& tensor : tensors) {
    first.push_back(entries.size());
    std::ranges::move(entries_of(tensor), std::back_inserter(entries));
  }
  const std::string header = make_safetensors_header(entries);
  WrittenFile written;
  for (const std::size_t i : first)
    written.data_begins.push_back(std::ssize(header) + entries[i].begin);
  TensorWriter writer(path, source, progress);
  writer.append(std::as_bytes(std::span(header)));
  for (const PlannedTensor& tensor : tensors) writer.write(tensor);
  writer.finish(written);
  return written;
}

std::vector<std::span<const PlannedTensor>> in_files(std::span<const PlannedTensor> tensors,
                                                     std::int64_t most) {
  std::vector<std::span<const PlannedTensor>> files;
  std::size_t begin = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > begin && tensors[i].bytes() > most - bytes) {
      files.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += tensors[i].bytes();
  }
  files.push_back(tensors.subspan(begin));
  return files;
}

void write_safetensors_folder(const std::string& folder, std::span<const PlannedTensor> tensors,
                              std::int64_t most, ParameterSource& source,
                              const WriteProgress& progress) {
  const auto files = in_files(tensors, most);
  std::vector<std::string> names{"model.safetensors"};
  if (files.size() > 1) {
    names.clear();
    for (std::size_t i = 1; i <= files.size(); ++i)
      names.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i, files.size()));
    write_weights_index(folder + "/model.safetensors.index.json", files, names);
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    write_tensors(folder + '/' + names[i], files[i], source, progress);
}

void write_checkpoint(const std::string& folder, const PlannedCheckpoint& plan,
                      ParameterSource& source, const WriteProgress& progress) {
  CheckpointIndex index{.ranks = 1, .kinds = {kWeightsKind}};
  index.parameters.assign(plan.parameters.begin(), plan.parameters.end());
  std::vector<PlannedTensor> tensors;
  for (const StoredParameter& p : plan.parameters)
    tensors.push_back({.name = p.name + ".master", .parameter = p});
  std::int64_t place = 0;
  for (const auto& part : in_files(tensors, plan.most)) {
    StoredFile& file = index.files.emplace_back();
    file.name = fmt::format("part-{:05}.safetensors", index.files.size() - 1);
    WrittenFile written = write_tensors(folder + '/' + file.name, part, source, progress);
    file.bytes = written.bytes;
    file.checksums = std::move(written.checksums);
    for (std::size_t i = 0; i < part.size(); ++i, ++place) {
      const auto& [name, rows, cols] = part[i].parameter;
      file.blocks.push_back({.slices = {{place, {0, rows, 0, cols, 0, rows * cols}}},
                             .offsets = {{kWeightsKind, written.data_begins[i]}}});
    }
  }
  write_index(folder, std::move(index), plan.texts);
}

}  // namespace axonn
