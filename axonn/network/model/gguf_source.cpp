#include "axonn/network/model/gguf_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/data/storage/gguf.h"
#include "axonn/data/storage/gguf_blocks.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/model/gguf_tensors.h"

namespace axonn {

namespace {

constexpr const char* kFactors = "rope_freqs.weight";
constexpr std::string_view kGateUp = "_gate_up_exps.";

/// Elements of a tensor of a type that is read.
class TensorValues {
 public:
  TensorValues() = default;
  TensorValues(const GgufFile& file, const GgufFile::Tensor& tensor, const GgufBlocks& blocks)
      : file_(&file), begin_(tensor.begin), blocks_(&blocks) {}

  /// Returns the bytes that were read.
  std::int64_t read(std::int64_t first, std::span<float> out) const {
    const std::int64_t each = blocks_->values, block = first / each, end = first + std::ssize(out),
                       count = (end + each - 1) / each - block;
    std::vector<std::byte> bytes(count * blocks_->bytes);
    std::vector<float> some(each);  // of a block of which only a part is wanted
    file_->read(begin_ + block * blocks_->bytes, bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::byte* const from = bytes.data() + i * blocks_->bytes;
      const std::int64_t begin = (block + i) * each;
      if (begin >= first && begin + each <= end) {
        blocks_->read(from, out.data() + begin - first);
        continue;
      }
      blocks_->read(from, some.data());
      const std::int64_t a = std::max(first, begin), b = std::min(end, begin + each);
      std::copy(some.begin() + (a - begin), some.begin() + (b - begin), out.begin() + (a - first));
    }
    return std::ssize(bytes);
  }

  /// The kind whose records its blocks are.
  Quantization kind() const { return blocks_->kind; }
  GgufType type() const { return static_cast<GgufType>(blocks_->number); }
  /// Reads blocks from one on as the file has them.
  void read_blocks(std::int64_t first, std::span<std::byte> out) const {
    file_->read(begin_ + first * blocks_->bytes, out);
  }

 private:
  const GgufFile* file_ = nullptr;
  std::int64_t begin_ = 0;
  const GgufBlocks* blocks_ = nullptr;
};

/// The type of floats of which this type's blocks are single ones.
std::optional<StoredType> floats_of(GgufType type) {
  if (type == GgufType::f32) return StoredType::f32;
  if (type == GgufType::f16) return StoredType::f16;
  return type == GgufType::bf16 ? std::optional(StoredType::bf16) : std::nullopt;
}

class GgufSource final : public ParameterSource {
 public:
  GgufSource(std::shared_ptr<const GgufFile> file, const ModelConfig& model,
             std::vector<StoredParameter> parameters)
      : ParameterSource(file->path(), std::move(parameters)), file_(std::move(file)) {
    std::vector<ParameterSpec> specs;
    for (const StoredParameter& one : this->parameters())
      specs.push_back({.name = one.name,
                       .layout = {.rows = one.rows, .cols = one.cols},
                       .decays = one.cols > 1});
    Differences differences;
    std::set<std::string, std::less<>> known{kFactors};
    for (const GgufTensor& tensor : gguf_tensors(model, specs, GgufType::f32)) {
      known.insert(tensor.name);
      if (tensor.values.empty()) locate(tensor, differences);
    }
    const GgufForm& form = GgufModel(model).type->gguf;
    for (const ParameterSpec& spec : specs) keep_number(form, spec.name, model.layers, differences);
    const std::int64_t further = GgufModelKeys(*file_).integer_or("nextn_predict_layers", 0);
    const auto is_further = [&](const std::string& name) {
      const std::int64_t block = block_of(name);
      return block >= model.layers && block < model.layers + further;
    };
    for (const auto& [name, tensor] : file_->tensors())
      if (!known.contains(name) && !is_further(name) && !is_gate_up(name, known))
        differences.add(name, " is not known");
    differences.refuse_if_any(concat(path(), " does not hold the tensors that its keys describe"));
  }

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::int64_t bytes = 0;
    std::vector<float> values;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (const auto number = numbers_.find(wanted[i].parameter); number != numbers_.end()) {
        const std::array<float, 1> value{number->second};
        for (const Slice& slice : wanted[i].slices)
          take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(value)));
        continue;
      }
      const auto found = rows_of_.find(wanted[i].parameter);
      AXONN_CHECK(found != rows_of_.end() && wanted[i].kind == "master", path(), " has no ",
                  wanted[i].kind, " of ", wanted[i].parameter);
      const std::vector<Rows>& rows = found->second;
      const auto floats = rows.size() == 1 ? rows.front().floats() : std::nullopt;
      const StoredType type = floats.value_or(StoredType::f32);
      // So few that they are still in the cache when they are taken.
      const std::int64_t at_once = (std::int64_t{1} << 19) / bytes_of(type);
      for (const Slice& slice : wanted[i].slices)
        for (std::int64_t at = slice.begin, end; at < slice.end; at = end) {
          end = std::min(slice.end, at + at_once);
          values.resize(end - at);  // no type has more bytes
          const auto out = std::as_writable_bytes(std::span(values));
          bytes += floats ? read_as_stored(rows, slice, at, end, out)
                          : read_elements(rows, slice, at, values);
          take(i, slice.offset + at - slice.begin, type, out.first((end - at) * bytes_of(type)));
        }
    }
    return bytes;
  }

  /// Of blocks that are records of a kind.
  Quantization stored_as(const std::string& parameter) const override {
    const auto found = rows_of_.find(parameter);
    if (found == rows_of_.end() || found->second.size() != 1) return Quantization::none;
    return found->second.front().kept_as();
  }
  std::optional<std::int64_t> read_records(const std::string& parameter, Quantization kind,
                                           std::int64_t first,
                                           std::span<std::byte> records) override {
    if (kind == Quantization::none || stored_as(parameter) != kind) return {};
    const Rows& rows = rows_of_.find(parameter)->second.front();
    const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
    const std::int64_t bytes = form.record_bytes(), each = rows.cols() / form.unit;
    for (auto rest = records; !rest.empty();) {
      const std::int64_t block = first % each,
                         left = rows.in_order() ? std::ssize(rest) : (each - block) * bytes;
      const auto part = rest.first(std::min(std::ssize(rest), left));
      rows.read_blocks(first / each, block, each, part);
      first += std::ssize(part) / bytes;
      rest = rest.subspan(part.size());
    }
    if (!has_finite_factors(form, records))
      refuse(path(), ": ", parameter,
             " has a block whose factor is not finite; the file is damaged");
    return std::ssize(records);
  }

 private:
  /// Where the elements of a parameter, or of some of its rows, lie in a tensor.
  class Rows {
   public:
    /// `before`: rows of the parameters before it in the tensor.
    Rows(const TensorValues& values, const GgufTensor& tensor, const StoredParameter& parameter,
         std::int64_t before)
        : values_(values), tensor_(tensor), rows_(parameter.rows), before_(before) {
      for (const StoredParameter& one : tensor.more) all_ += one.rows;
      all_ += tensor.parameter.rows;
    }

    bool holds(std::int64_t row) const {
      const auto& [of, first, count, transposed] = tensor_.heads;
      return count == 0 || (row % of >= first && row % of < first + count);
    }
    /// Whether the tensor has its rows one after another, so that several can be read at once.
    bool in_order() const {
      const auto& heads = tensor_.heads;
      return heads.count == 0 && !heads.transposed && tensor_.interleaved == 0 &&
             tensor_.turns <= 1 && tensor_.tiles.groups == 1 && !tensor_.tiles.columns;
    }
    std::int64_t cols() const { return tensor_.parameter.cols; }
    /// The kind of the tensor's blocks, if they can be kept as they are.
    Quantization kept_as() const { return is_same() ? values_.kind() : Quantization::none; }
    /// The type of its floats, if they can be taken as they are.
    std::optional<StoredType> floats() const {
      return is_same() ? floats_of(values_.type()) : std::nullopt;
    }
    /// Reads blocks from one of a row on, of `each` a row; further rows only if they are in order.
    void read_blocks(std::int64_t row, std::int64_t block, std::int64_t each,
                     std::span<std::byte> out) const {
      values_.read_blocks(row_of(row) * each + block, out);
    }

    /// Reads elements of a row that it holds, from column `col` on, and of those after it if its
    /// rows are in order; returns the bytes.
    std::int64_t read(std::int64_t row, std::int64_t col, std::span<float> out) const {
      const std::int64_t bytes =
          tensor_.heads.transposed ? read_of_head(row, col, out) : read_of_row(row, col, out);
      if (tensor_.decays)
        for (float& value : out) value = std::log(-value);
      if (tensor_.plus != 0)
        for (float& value : out) value -= tensor_.plus;
      return bytes;
    }

   private:
    /// Whether rows are whole rows of the tensor, with the same values.
    bool is_same() const {
      return tensor_.heads.count == 0 && !tensor_.tiles.columns && !tensor_.decays &&
             tensor_.plus == 0;
    }
    /// The row of the tensor that is this row of the parameter.
    std::int64_t row_of(std::int64_t row) const {
      if (const auto& heads = tensor_.heads; heads.count > 0)
        return row / heads.of * heads.count + row % heads.of - heads.first;
      if (const std::int64_t head = tensor_.interleaved; head > 0) {
        const std::int64_t half = head / 2, in = row % head;
        return before_ + row - in + in % half * 2 + in / half;
      }
      if (tensor_.turns > 1) {
        const std::int64_t each = rows_ / tensor_.turns;
        return row / each * (all_ / tensor_.turns) + before_ / tensor_.turns + row % each;
      }
      return tensor_.tiles.columns ? before_ + row : turned(before_ + row);
    }
    /// A row, or column, in the order of GgufTensor::tiles.
    std::int64_t turned(std::int64_t at) const {
      const auto& [groups, each, width, first, columns] = tensor_.tiles;
      if (groups == 1 || at < first) return at;
      const std::int64_t unit = (at - first) / width;
      return first + (unit % each * groups + unit / each) * width + (at - first) % width;
    }
    std::int64_t read_of_row(std::int64_t row, std::int64_t col, std::span<float> out) const {
      const std::int64_t begin = row_of(row) * cols();
      if (!tensor_.tiles.columns) return values_.read(begin + col, out);
      std::vector<float> whole(cols());
      const std::int64_t bytes = values_.read(begin, whole);
      for (float& value : out) value = whole[turned(col++)];
      return bytes;
    }
    /// The matrix of a head is (columns, rows of the head); the last one is kept.
    std::int64_t read_of_head(std::int64_t row, std::int64_t col, std::span<float> out) const {
      const auto& heads = tensor_.heads;
      const std::int64_t head = row / heads.of;
      std::int64_t bytes = 0;
      if (head != head_) {
        matrix_.resize(heads.count * cols());
        bytes = values_.read(head * heads.count * cols(), matrix_);
        head_ = head;
      }
      for (float& value : out) value = matrix_[col++ * heads.count + row % heads.of - heads.first];
      return bytes;
    }

    TensorValues values_;
    GgufTensor tensor_;
    std::int64_t rows_, before_, all_ = 0;
    mutable std::vector<float> matrix_;  // of head_
    mutable std::int64_t head_ = -1;
  };

  /// Finds a parameter that is a number of a list, GgufForm::kept_in_keys.
  void keep_number(const GgufForm& form, const std::string& parameter, std::int64_t layers,
                   Differences& differences) {
    const std::size_t at =
        form.kept_in_keys.empty() ? parameter.npos : parameter.find(form.kept_in_keys);
    if (at == parameter.npos) return;
    constexpr std::string_view kLayers = "model.layers.";
    std::int64_t layer = 0;
    std::from_chars(parameter.data() + kLayers.size(), parameter.data() + at, layer);
    const std::string key = concat(form.kept_key, parameter.substr(at + form.kept_in_keys.size()));
    const std::vector<double>* const all = file_->numbers(key);
    if (!all || std::ssize(*all) != layers)
      return differences.add("the key ", key, " is no list of ", layers, " numbers");
    numbers_[parameter] = static_cast<float>((*all)[layer]);
  }

  /// The number in "blk.N."; -1: the tensor is of no block.
  static std::int64_t block_of(std::string_view name) {
    constexpr std::string_view kBlock = "blk.";
    std::int64_t block = -1;
    if (name.starts_with(kBlock))
      std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), block);
    return block;
  }
  /// Whether a tensor has the rows of a known ffn_gate_exps, which the file lacks, and ffn_up_exps.
  bool is_gate_up(std::string name, const std::set<std::string, std::less<>>& known) const {
    const std::size_t at = name.find(kGateUp);
    if (at == name.npos) return false;
    name.replace(at, kGateUp.size(), "_gate_exps.");
    return known.contains(name) && !file_->tensors().contains(name);
  }
  /// Whether sizes are the same but for ones at the end.
  static bool same_sizes(std::vector<std::int64_t> some, std::vector<std::int64_t> others) {
    for (auto* const sizes : {&some, &others})
      while (sizes->size() > 1 && sizes->back() == 1) sizes->pop_back();
    return some == others;
  }
  /// Finds the parameters in a tensor.
  void locate(const GgufTensor& wanted, Differences& differences) {
    auto found = file_->tensors().find(wanted.name);
    // In some files the gate's rows of each expert come before those of ffn_up, in one tensor.
    std::int64_t first = 0, parts = 1;
    for (const std::string_view half : {"_gate_exps.", "_up_exps."})
      if (const std::size_t at = wanted.name.find(half);
          at != wanted.name.npos && found == file_->tensors().end()) {
        found = file_->tensors().find(std::string(wanted.name).replace(at, half.size(), kGateUp));
        first = half == "_up_exps." ? wanted.parameter.rows : 0;
        parts = 2;
      }
    if (found == file_->tensors().end()) return differences.add("there is no ", wanted.name);
    const GgufFile::Tensor& tensor = found->second;
    const GgufBlocks* const blocks = find_gguf_blocks(tensor.type);
    if (!blocks)
      return differences.add(wanted.name, " is of type ", tensor.type,
                             " of ggml, which is not read; quantize the model again as one of ",
                             gguf_block_names());
    std::vector<std::int64_t> sizes = wanted.sizes();
    if (parts > 1) sizes[1] *= parts;
    if (!same_sizes(tensor.sizes, sizes))
      return differences.add(wanted.name, " has other sizes than ", wanted.parameter.name);
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.sizes) count *= size;
    if (tensor.sizes[0] % blocks->values != 0 ||
        count / blocks->values * blocks->bytes > file_->bytes() - tensor.begin)
      return differences.add(wanted.name, " is cut short: the file is damaged");
    const TensorValues values(*file_, tensor, *blocks);
    std::int64_t before = first;
    const auto add = [&](const StoredParameter& one) {
      rows_of_[one.name].emplace_back(values, wanted, one, before);
      before += parts * one.rows;
    };
    add(wanted.parameter);
    std::ranges::for_each(wanted.more, add);
  }

  /// Calls f(part, row, column, count) for runs of a slice's elements, from one on, that lie one
  /// after another in a tensor.
  static void for_runs(const std::vector<Rows>& parts, const Slice& slice, std::int64_t at,
                       std::int64_t end, const auto& f) {
    while (at < end) {
      const std::int64_t row = slice.row + at / slice.cols, col = at % slice.cols;
      const auto part =
          std::ranges::find_if(parts, [&](const Rows& one) { return one.holds(row); });
      const bool whole = part->in_order() && slice.cols == part->cols();
      const std::int64_t count = whole ? end - at : std::min(end - at, slice.cols - col);
      f(*part, row, slice.col + col, count);
      at += count;
    }
  }
  /// Reads elements of a slice from one on; returns the bytes that were read.
  static std::int64_t read_elements(const std::vector<Rows>& parts, const Slice& slice,
                                    std::int64_t at, std::span<float> out) {
    std::int64_t bytes = 0;
    for_runs(parts, slice, at, at + std::ssize(out),
             [&](const Rows& part, std::int64_t row, std::int64_t col, std::int64_t count) {
               bytes += part.read(row, col, out.first(count));
               out = out.subspan(count);
             });
    return bytes;
  }
  /// The same of floats as the file has them.
  static std::int64_t read_as_stored(const std::vector<Rows>& parts, const Slice& slice,
                                     std::int64_t at, std::int64_t end, std::span<std::byte> out) {
    const std::int64_t each = bytes_of(*parts.front().floats());
    for_runs(parts, slice, at, end,
             [&](const Rows& part, std::int64_t row, std::int64_t col, std::int64_t count) {
               part.read_blocks(row, col, part.cols(), out.first(count * each));
               out = out.subspan(count * each);
             });
    return (end - at) * each;
  }

  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, std::vector<Rows>, std::less<>> rows_of_;  // by parameter
  std::map<std::string, float, std::less<>> numbers_;              // likewise
};

}  // namespace

std::vector<float> gguf_rotary_factors(const GgufFile& file) {
  const auto found = file.tensors().find(kFactors);
  if (found == file.tensors().end()) return {};
  const GgufFile::Tensor& tensor = found->second;
  const GgufBlocks* const blocks = find_gguf_blocks(tensor.type);
  if (!blocks || blocks->values > 1 || tensor.sizes.size() != 1 ||
      tensor.sizes[0] > file.bytes() / blocks->bytes)
    refuse(file.path(), ": ", kFactors, " is no vector of numbers; the file is damaged");
  std::vector<float> factors(tensor.sizes[0]);
  TensorValues(file, tensor, *blocks).read(0, factors);
  return factors;
}

std::unique_ptr<ParameterSource> gguf_source(std::shared_ptr<const GgufFile> file,
                                             const ModelConfig& model,
                                             std::vector<StoredParameter> parameters) {
  return std::make_unique<GgufSource>(std::move(file), model, std::move(parameters));
}

}  // namespace axonn
