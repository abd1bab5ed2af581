#include "axonn/storage/write_tensors.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/storage/stored_values.h"

namespace axonn {

namespace {

// Large compared with kPieceBytes: a read from a checkpoint fetches the pieces at both ends whole.
constexpr std::int64_t kElementsAtOnce = 32 << 20;
constexpr std::int64_t kElementsOfStrip = 1 << 20;  // converted and written while in cache

std::vector<std::int64_t> shape_of(const PlannedTensor& tensor) {
  const auto& [name, rows, cols] = tensor.parameter;
  if (tensor.vector) return {rows};
  return tensor.transposed ? std::vector{cols, rows} : std::vector{rows, cols};
}

/// Whether a finite number becomes infinite in F16: 65520, halfway from 65504 to 2^16, rounds up.
bool beyond_f16(float value) { return std::abs(value) >= 65520 && std::isfinite(value); }

/// Writes tensors to a file and computes its checksums.
class TensorWriter {
 public:
  explicit TensorWriter(const std::string& path) : file_(path) {}

  void append(std::span<const std::byte> bytes) {
    hasher_.append(bytes);
    file_.append(bytes);
  }

  void write(const PlannedTensor& tensor, ParameterSource& source, const WriteProgress& progress) {
    if (tensor.transposed)
      write_columns(tensor, source, progress);
    else
      write_rows(tensor, source, progress);
  }

  void finish(WrittenFile& written) {
    written.bytes = file_.bytes();
    file_.finish();
    written.checksums = hasher_.finish();
  }

 private:
  void put(const PlannedTensor& tensor, std::span<const float> values,
           const WriteProgress& progress) {
    if (tensor.type == StoredType::f16 && std::ranges::any_of(values, beyond_f16))
      refuse(tensor.name, " has values beyond 65504, which F16 cannot hold; use BF16 or F32");
    bytes_.resize(values.size() * static_cast<std::size_t>(bytes_of(tensor.type)));
    from_floats(tensor.type, values, bytes_);
    append(bytes_);
    if (progress) progress(std::ssize(bytes_));
  }

  void write_rows(const PlannedTensor& tensor, ParameterSource& source,
                  const WriteProgress& progress) {
    const auto& [name, rows, cols] = tensor.parameter;
    const std::int64_t count = rows * cols,
                       at_once = std::max<std::int64_t>(1, kElementsAtOnce / cols) * cols;
    for (std::int64_t begin = 0; begin < count; begin += at_once) {
      const std::int64_t end = std::min(count, begin + at_once);
      values_.resize(static_cast<std::size_t>(end - begin));
      source.read_slice(name, {.rows = rows, .cols = cols, .begin = begin, .end = end}, values_);
      for (std::span<const float> rest = values_; !rest.empty();) {
        const auto strip = rest.first(std::min<std::size_t>(rest.size(), kElementsOfStrip));
        put(tensor, strip, progress);
        rest = rest.subspan(strip.size());
      }
    }
  }

  /// Row i of the file is column i of the parameter.
  void write_columns(const PlannedTensor& tensor, ParameterSource& source,
                     const WriteProgress& progress) {
    const std::int64_t rows = tensor.parameter.rows, all = tensor.parameter.cols,
                       at_once = std::max<std::int64_t>(1, kElementsAtOnce / rows),
                       of_strip = std::max<std::int64_t>(1, kElementsOfStrip / rows);
    for (std::int64_t col = 0; col < all; col += at_once) {
      const std::int64_t cols = std::min(at_once, all - col);
      values_.resize(static_cast<std::size_t>(rows * cols));
      source.read_slice(tensor.parameter.name,
                        {.rows = rows, .col = col, .cols = cols, .begin = 0, .end = rows * cols},
                        values_);
      for (std::int64_t first = 0; first < cols; first += of_strip) {
        const std::int64_t count = std::min(of_strip, cols - first);
        strip_.resize(static_cast<std::size_t>(count * rows));
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t i = 0; i < count; ++i)
            strip_[i * rows + row] = values_[row * cols + first + i];
        put(tensor, strip_, progress);
      }
    }
  }

  OutputFile file_;
  PieceHasher hasher_;
  std::vector<float> values_, strip_;
  std::vector<std::byte> bytes_;
};

/// "00042".
std::string five_digits(std::size_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

void write_weights_index(const std::string& path,
                         std::span<const std::span<const PlannedTensor>> files,
                         std::span<const std::string> names) {
  std::int64_t total = 0;
  auto map = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const PlannedTensor& tensor : files[i]) {
      map[tensor.name] = names[i];
      total += tensor.bytes();
    }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                        {"weight_map", std::move(map)}};
  write_text(path, index.dump(2) + "\n");
}

}  // namespace

WrittenFile write_tensors(const std::string& path, std::span<const PlannedTensor> tensors,
                          ParameterSource& source, const WriteProgress& progress) {
  std::vector<SafetensorsEntry> entries;
  for (const PlannedTensor& tensor : tensors)
    entries.push_back({.name = tensor.name, .type = tensor.type, .shape = shape_of(tensor)});
  const std::string header = make_safetensors_header(entries);
  WrittenFile written;
  for (const SafetensorsEntry& entry : entries)
    written.data_begins.push_back(std::ssize(header) + entry.begin);
  TensorWriter writer(path);
  writer.append(std::as_bytes(std::span(header)));
  for (const PlannedTensor& tensor : tensors) writer.write(tensor, source, progress);
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
      names.push_back(
          concat("model-", five_digits(i), "-of-", five_digits(files.size()), ".safetensors"));
    write_weights_index(folder + "/model.safetensors.index.json", files, names);
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    write_tensors(folder + '/' + names[i], files[i], source, progress);
}

void write_checkpoint(const std::string& folder, const PlannedCheckpoint& plan,
                      ParameterSource& source, const WriteProgress& progress) {
  CheckpointIndex index{.ranks = 1, .kinds = {"master"}};
  index.parameters.assign(plan.parameters.begin(), plan.parameters.end());
  std::vector<PlannedTensor> tensors;
  for (const StoredParameter& p : plan.parameters)
    tensors.push_back({.name = p.name + ".master", .parameter = p});
  std::int64_t place = 0;
  for (const auto& part : in_files(tensors, plan.most)) {
    StoredFile& file = index.files.emplace_back();
    file.name = concat("part-", five_digits(index.files.size() - 1), ".safetensors");
    WrittenFile written = write_tensors(folder + '/' + file.name, part, source, progress);
    file.bytes = written.bytes;
    file.checksums = std::move(written.checksums);
    for (std::size_t i = 0; i < part.size(); ++i, ++place) {
      const auto& [name, rows, cols] = part[i].parameter;
      file.blocks.push_back({.slices = {{place, {0, rows, 0, cols, 0, rows * cols}}},
                             .offsets = {{"master", written.data_begins[i]}}});
    }
  }
  for (const auto& [name, contents] : plan.texts) {
    index.texts[name] = {std::ssize(contents), xxh3(contents)};
    write_text(concat(folder, '/', name), contents);
  }
  write_text(concat(folder, '/', kIndexName), to_text(index));
}

}  // namespace axonn
