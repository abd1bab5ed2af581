#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/gguf.h"
#include "axonn/data/storage/parameter_source.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/config.h"

namespace axonn {

/// llama.cpp's numbers of kinds of routers, expert_gating_func.
inline constexpr std::uint32_t kGgufSoftmax = 1, kGgufSigmoid = 2;

/// Behind messages on files that are not read.
inline constexpr const char* kGgufRemedy = "; convert the model's Hugging Face folder instead";

/// Of a value that was rounded to f32 the shortest decimal: 1e-05 for 9.999999747e-06.
double shortest_decimal(double rounded);

/// What a GGUF file says of a model: the keys of its architecture, which are named here without
/// that, and which tensors there are. Functions throw UsageError for a value of another kind.
class GgufModelKeys {
 public:
  explicit GgufModelKeys(const GgufFile& file);

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  /// "llama.block_count" for "block_count".
  std::string full(std::string_view key) const;

  std::optional<std::int64_t> integer(std::string_view key) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise) const;
  std::optional<double> number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  /// A list, or a single integer as a list of one; empty if there is no such key.
  std::vector<std::int64_t> integers(std::string_view key) const;
  /// Throws UsageError if there is no such key, or if it is not 1 to `most`.
  std::int64_t needed(std::string_view key, std::int64_t most) const;

  /// Whether a block has a tensor whose name ends so, behind "blk.N.": "attn_q.bias".
  bool has_in_blocks(std::string_view end) const;

 private:
  const GgufFile& file_;
  std::string architecture_;
};

/// The positions that programs which read GGUF may use: at most the window, because llama.cpp
/// attends to all positions in most architectures (GgufForm::windows).
std::int64_t gguf_positions(const ModelConfig& model);

/// The keys of a GGUF file that describe a model, as llama.cpp reads them. type: of the matrices.
/// Throws UsageError for a model whose type has no architecture there (GgufForm).
GgufKeys gguf_model_keys(const ModelConfig& model, const std::string& name, GgufType type);

/// The keys of parameters that llama.cpp has there instead of in tensors, such as xIELU's numbers
/// of each layer.
GgufKeys gguf_values(const ModelConfig& model, ParameterSource& source);

}  // namespace axonn
