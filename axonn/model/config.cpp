#include "axonn/model/config.h"

#include <string>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// The divisors of `whole` next to `part`: "12 or 16".
std::string divisors_near(std::int64_t whole, std::int64_t part) {
  std::int64_t below = part, above = part;
  while (below > 1 && whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  return below < 1 || above > whole ? concat(whole)
                                    : concat(below, above != below ? concat(" or ", above) : "");
}

void need(std::int64_t value, const char* key) {
  if (value <= 0)
    refuse("[model] ", key, " is missing: set it in the file or with --model.", key,
           ", or name a checkpoint with --model.path");
}

/// An MLP with SwiGLU has three matrices, one with GELU two. As in Llama, two thirds of 4 · hidden,
/// rounded up to a multiple of 256, give about as many parameters.
std::int64_t default_ffn(const ModelConfig& model) {
  if (model.family == ModelFamily::gpt) return 4 * model.hidden;
  constexpr std::int64_t kMultiple = 256;
  return (8 * model.hidden / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

void validate_rope(const ModelConfig& model) {
  const std::int64_t width = model.head_width();
  if (width % 2 != 0)
    refuse("[model] head_dim = ", width,
           " is odd, but rotary positions rotate pairs of columns; take ", width + 1);
  if (model.rope_scaling == RopeScalingKind::none) return;
  if (model.rope_low_freq_factor >= model.rope_high_freq_factor)
    refuse("[model] rope_low_freq_factor = ", model.rope_low_freq_factor,
           " is not below rope_high_freq_factor = ", model.rope_high_freq_factor,
           "; Llama 3.1 has 1 and 4");
}

}  // namespace

ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0 && model.heads > 0) model.head_dim = model.hidden / model.heads;
  if (model.ffn == 0) model.ffn = default_ffn(model);
  if (model.vocab == 0) model.vocab = vocab;
  if (model.positions == 0) model.positions = positions;
  return model;
}

void validate(const ModelConfig& model) {
  if (model.lora.dropout >= 1)
    refuse("[lora] dropout = ", model.lora.dropout, " is not below 1; common values are 0 to 0.1");
  if (!model.path.empty()) return;
  need(model.layers, "layers");
  need(model.hidden, "hidden");
  need(model.heads, "heads");
  if (model.head_dim == 0 && model.hidden % model.heads != 0)
    refuse("[model] heads = ", model.heads, " does not divide hidden = ", model.hidden, "; take ",
           divisors_near(model.hidden, model.heads), " heads, or a hidden of ",
           model.hidden / model.heads * model.heads + model.heads, ", or set head_dim");
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0)
    refuse("[model] kv_heads = ", model.kv_heads, " does not divide heads = ", model.heads,
           "; take ", divisors_near(model.heads, model.kv_heads), ", or 0 for as many as heads");
  if (model.family == ModelFamily::llama) validate_rope(model);
}

}  // namespace axonn
