#include "axonn/network/model/gguf_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/data/storage/gguf_blocks.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_tensors.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/nn/attention/rope.h"

namespace axonn {

namespace {

using Json = nlohmann::json;

constexpr const char* kFactors = "rope_freqs.weight";
constexpr const char* kHead = "output.weight";
constexpr const char* kRemedy = "; convert the model's Hugging Face folder in its place";

/// The name of a key in config.json.
struct NamedKey {
  std::string_view gguf, hugging_face;
};

constexpr std::array<NamedKey, 11> kIntegers = {{{"block_count", "num_hidden_layers"},
                                                 {"context_length", "max_position_embeddings"},
                                                 {"embedding_length", "hidden_size"},
                                                 {"feed_forward_length", "intermediate_size"},
                                                 {"attention.head_count", "num_attention_heads"},
                                                 {"attention.head_count_kv", "num_key_value_heads"},
                                                 {"attention.key_length", "head_dim"},
                                                 {"expert_used_count", "num_experts_per_tok"},
                                                 {"expert_count", "num_experts"},
                                                 {"expert_feed_forward_length", ""},
                                                 {"attention.sliding_window", "sliding_window"}}};
constexpr std::array<NamedKey, 3> kNumbers = {
    {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
     {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
     {"rope.freq_base", "rope_theta"}}};

/// Keys that follow from others, and are compared with them.
constexpr std::array<std::string_view, 3> kRepeated = {"attention.value_length",
                                                       "rope.dimension_count", "vocab_size"};

/// An architecture, and the model_type of its models without experts and with them.
struct GgufArchitecture {
  std::string_view name, dense, routed;
};
constexpr std::array<GgufArchitecture, 6> kArchitectures = {{{"llama", "llama", "mixtral"},
                                                             {"gpt2", "gpt2", ""},
                                                             {"qwen2", "qwen2", ""},
                                                             {"qwen3", "qwen3", ""},
                                                             {"qwen3moe", "", "qwen3_moe"},
                                                             {"olmoe", "", "olmoe"}}};

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file)
      : file_(file), architecture_(file.text("general.architecture").value_or("")) {}

  Json read() {
    const std::string_view type = model_type();
    Json out{{"model_type", type}};
    for (const auto& [gguf, hugging_face] : kIntegers)
      if (const auto value = file_.integer(key(gguf)); value && !hugging_face.empty())
        out[hugging_face] = *value;
    for (const auto& [gguf, hugging_face] : kNumbers)
      if (const auto value = file_.number(key(gguf))) out[hugging_face] = exact(*value);
    const auto embedding = file_.tensors().find("token_embd.weight");
    if (embedding == file_.tensors().end() || embedding->second.sizes.size() != 2)
      refuse(file_.path(), " has no matrix token_embd.weight; is it a language model?");
    out["vocab_size"] = embedding->second.sizes[1];
    out["tie_word_embeddings"] = !file_.tensors().contains(kHead);
    if (type == "gpt2") out["n_inner"] = out["intermediate_size"];
    if (type == "mixtral") out["num_local_experts"] = *file_.integer(key("expert_count"));
    if (const auto width = file_.integer(key("expert_feed_forward_length")))
      out["moe_intermediate_size"] = *width;
    if (type == "qwen3_moe") out.update({{"norm_topk_prob", true}, {"decoder_sparse_step", 1}});
    read_scaling(out);
    check_keys();
    return out;
  }

 private:
  std::string key(std::string_view name) const { return concat(architecture_, '.', name); }

  std::string_view model_type() const {
    const auto found = std::ranges::find(kArchitectures, architecture_, &GgufArchitecture::name);
    const bool routed = file_.integer(key("expert_count")).value_or(0) > 0;
    std::string_view type;
    if (found != kArchitectures.end()) type = routed ? found->routed : found->dense;
    if (!type.empty()) return type;
    std::string names;
    for (const GgufArchitecture& one : kArchitectures)
      names += concat(names.empty() ? "" : ", ", one.name);
    refuse(file_.path(), ": models of the architecture '", printable(architecture_), "'",
           routed ? " with experts" : "", " are not read from GGUF; those of ", names, " are",
           kRemedy);
  }

  /// Of a value that was rounded to f32, the shortest decimal: 1e-05 for 9.999999747e-06.
  static double exact(double value) {
    std::array<char, 32> text{};
    std::to_chars(text.data(), text.data() + text.size() - 1, static_cast<float>(value));
    return std::strtod(text.data(), nullptr);
  }

  void read_scaling(Json& out) const {
    const std::string type = file_.text(key("rope.scaling.type")).value_or("none");
    if (type == "none") return;
    const auto factor = file_.number(key("rope.scaling.factor"));
    if ((type != "linear" && type != "yarn") || !factor)
      refuse(file_.path(), ": ", key("rope.scaling.type"), " is '", printable(type),
             "', which is not read", kRemedy);
    out["rope_scaling"] = {{"rope_type", type}, {"factor", exact(*factor)}};
    if (const auto positions = file_.integer(key("rope.scaling.original_context_length")))
      out["rope_scaling"]["original_max_position_embeddings"] = *positions;
  }

  /// Refuses keys of the architecture that are not read.
  void check_keys() const {
    std::set<std::string, std::less<>> known{key("rope.scaling.type"), key("rope.scaling.factor"),
                                             key("rope.scaling.original_context_length")};
    for (const auto& [gguf, hugging_face] : kIntegers) known.insert(key(gguf));
    for (const auto& [gguf, hugging_face] : kNumbers) known.insert(key(gguf));
    for (const std::string_view one : kRepeated) known.insert(key(one));
    std::vector<std::string> unread;
    for (const auto& [name, value] : file_.keys())
      if (name.starts_with(architecture_ + '.') && !known.contains(name)) unread.push_back(name);
    if (!unread.empty())
      refuse(file_.path(), ": not read, but they may change the model: ", join(unread), kRemedy);
  }

  const GgufFile& file_;
  std::string architecture_;
};

/// Elements of a tensor of a type that is read.
class TensorValues {
 public:
  TensorValues() = default;
  TensorValues(const GgufFile& file, const GgufFile::Tensor& tensor, const GgufBlocks& blocks)
      : file_(&file), begin_(tensor.begin), blocks_(&blocks) {}

  /// Returns the bytes that were read.
  std::int64_t read(std::int64_t first, std::span<float> out) const {
    const std::int64_t each = blocks_->values, block = first / each,
                       count = (first + std::ssize(out) + each - 1) / each - block;
    std::vector<std::byte> bytes(count * blocks_->bytes);
    std::vector<float> values(count * each);
    file_->read(begin_ + block * blocks_->bytes, bytes);
    for (std::int64_t i = 0; i < count; ++i)
      blocks_->read(bytes.data() + i * blocks_->bytes, values.data() + i * each);
    std::copy_n(values.begin() + (first - block * each), out.size(), out.begin());
    return std::ssize(bytes);
  }

 private:
  const GgufFile* file_ = nullptr;
  std::int64_t begin_ = 0;
  const GgufBlocks* blocks_ = nullptr;
};

/// The tensors of these parameters, also of a type that is only read.
std::vector<GgufTensor> tensors_of(const ModelConfig& model,
                                   std::span<const ParameterSpec> parameters) {
  const Family& family = *find_family(model);
  if (!need_type(family, model).gguf.architecture.empty())
    return gguf_tensors(model, parameters, GgufType::f32);
  std::vector<GgufTensor> tensors;
  for (const ParameterSpec& spec : parameters)
    tensors.push_back({.name = family.gguf_name(model, spec.name),
                       .parameter = {spec.name, spec.layout.rows, spec.layout.cols},
                       .vector = !spec.decays});
  return tensors;
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
    for (const GgufTensor& tensor : tensors_of(model, specs)) {
      known.insert(tensor.name);
      if (tensor.values.empty()) place(tensor, differences);
    }
    for (const auto& [name, tensor] : file_->tensors())
      if (!known.contains(name)) differences.add(name, " is not known");
    differences.refuse_if_any(concat(path(), " does not hold the tensors that its keys describe"));
  }

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    constexpr std::int64_t kAtOnce = 1 << 17;  // elements
    std::int64_t bytes = 0;
    std::vector<float> values;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto found = places_.find(wanted[i].parameter);
      AXONN_CHECK(found != places_.end() && wanted[i].kind == "master", path(), " has no ",
                  wanted[i].kind, " of ", wanted[i].parameter);
      for (const Slice& slice : wanted[i].slices)
        for (std::int64_t at = slice.begin, end; at < slice.end; at = end) {
          end = std::min(slice.end, at + kAtOnce);
          values.resize(end - at);
          bytes += read_elements(found->second, slice, at, values);
          take(i, slice.offset + at - slice.begin, StoredType::f32,
               std::as_bytes(std::span(values)));
        }
    }
    return bytes;
  }

 private:
  struct Place {
    TensorValues values;
    std::int64_t first = 0, cols = 1;  ///< element 0 of the parameter is element `first`
    std::int64_t interleaved = 0;      ///< as in GgufTensor
    float plus = 0;

    /// The row of the file that is this row of the parameter.
    std::int64_t row(std::int64_t r) const {
      if (interleaved == 0) return r;
      const std::int64_t half = interleaved / 2, in = r % interleaved;
      return r - in + in % half * 2 + in / half;
    }
  };

  /// Finds the parameters in a tensor.
  void place(const GgufTensor& wanted, Differences& differences) {
    const auto found = file_->tensors().find(wanted.name);
    if (found == file_->tensors().end()) return differences.add("there is no ", wanted.name);
    const GgufFile::Tensor& tensor = found->second;
    const GgufBlocks* const blocks = find_gguf_blocks(tensor.type);
    if (!blocks)
      return differences.add(wanted.name, " is of type ", tensor.type,
                             " of ggml, which is not read; quantize the model again as one of ",
                             gguf_block_names());
    if (tensor.sizes != wanted.sizes() || wanted.heads.count > 0)
      return differences.add(wanted.name, " has other sizes than ", wanted.parameter.name);
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.sizes) count *= size;
    if (tensor.sizes[0] % blocks->values != 0 ||
        count / blocks->values * blocks->bytes > file_->bytes() - tensor.begin)
      return differences.add(wanted.name, " is cut short: the file is damaged");
    Place at{.values = TensorValues(*file_, tensor, *blocks),
             .cols = wanted.parameter.cols,
             .interleaved = wanted.interleaved,
             .plus = wanted.plus};
    places_[wanted.parameter.name] = at;
    at.first = wanted.parameter.count();
    for (const StoredParameter& one : wanted.more) {
      places_[one.name] = at;
      at.first += one.count();
    }
  }

  std::int64_t read_elements(const Place& place, const Slice& slice, std::int64_t at,
                             std::span<float> out) const {
    std::int64_t bytes = 0;
    while (!out.empty()) {
      const std::int64_t row = slice.row + at / slice.cols, col = at % slice.cols,
                         count = std::min(std::ssize(out), slice.cols - col);
      const auto part = out.first(static_cast<std::size_t>(count));
      bytes += place.values.read(place.first + place.row(row) * place.cols + slice.col + col, part);
      if (place.plus != 0)
        for (float& value : part) value -= place.plus;
      at += count;
      out = out.subspan(static_cast<std::size_t>(count));
    }
    return bytes;
  }

  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, Place, std::less<>> places_;  // by parameter
};

/// The factors by which the file divides rotary frequencies; empty: it has none.
std::vector<float> rotary_factors(const GgufFile& file) {
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

/// Finds the scaling of Llama 3.1 or 3.2 that has these factors.
RopeScaling scaling_with(const std::vector<float>& factors, const ModelConfig& model,
                         const std::string& path) {
  RopeScaling scaling{.kind = RopeScalingKind::llama3};
  const auto plain = rope_frequencies(model.head_width(), model.rope_theta, {});
  for (const double factor : {8.0, 32.0}) {
    scaling.factor = factor;
    const auto scaled = rope_frequencies(model.head_width(), model.rope_theta, scaling);
    bool same = factors.size() == plain.size();
    for (std::size_t i = 0; same && i < plain.size(); ++i)
      same = std::abs(plain[i] / scaled[i] / double{factors[i]} - 1) < 1e-5;
    if (same) return scaling;
  }
  refuse(path, ": ", kFactors, " is of no known scaling (those of Llama 3.1 and 3.2 are known)",
         kRemedy);
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const Json json = ConfigReader(file).read();
  ModelConfig model = parse_hugging_face_config(json.dump(), file.path());
  if (const auto factors = rotary_factors(file); !factors.empty())
    model.rope = scaling_with(factors, model, file.path());
  const std::string architecture = file.text("general.architecture").value_or("");
  for (const auto& [key, wanted] : {std::pair{"attention.value_length", model.head_width()},
                                    {"rope.dimension_count", model.head_width()},
                                    {"vocab_size", model.vocab}})
    if (const auto value = file.integer(concat(architecture, '.', key)); value && *value != wanted)
      refuse(file.path(), ": ", architecture, '.', key, " is ", *value, ", wanted ", wanted,
             kRemedy);
  return model;
}

std::unique_ptr<ParameterSource> gguf_source(std::shared_ptr<const GgufFile> file,
                                             const ModelConfig& model,
                                             std::vector<StoredParameter> parameters) {
  return std::make_unique<GgufSource>(std::move(file), model, std::move(parameters));
}

}  // namespace axonn
