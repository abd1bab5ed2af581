#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace axonn {

class OptionList;

enum class ModelFamily { gpt, llama };

inline constexpr std::array<std::string_view, 2> kModelFamilies = {"gpt", "llama"};

/// The section [model]: the sizes of a model, or the place it is read from. Plain data.
///
/// A 0 says "follow from the others": resolved() fills it in. What has no default (layers, hidden,
/// heads) is 0 until the user sets it.
struct ModelConfig {
  ModelFamily family = ModelFamily::gpt;
  std::int64_t layers = 0;     ///< L
  std::int64_t hidden = 0;     ///< C, the model width
  std::int64_t heads = 0;      ///< H
  std::int64_t kv_heads = 0;   ///< key-value heads; 0: heads
  std::int64_t ffn = 0;        ///< F, the MLP width; 0: 4 hidden
  std::int64_t vocab = 0;      ///< V, unpadded; 0: the tokenizer's
  std::int64_t positions = 0;  ///< rows of the position embedding; 0: training.seq_len
  bool tied = true;            ///< the logits' weight is the embedding's
  bool bias = true;            ///< biases in linear layers and norms
  double norm_eps = 1e-5;
  double init_std = 0.02;  ///< of the initial weights; projections into the residual: / sqrt(2 L)
  std::string path = {};   ///< a checkpoint to read instead of the sizes above

  std::int64_t head_width() const { return hidden / heads; }  ///< D
  bool operator==(const ModelConfig&) const = default;
};

/// The config with every 0 replaced by what it stands for. vocab and positions are what the
/// tokenizer and training.seq_len say; a 0 here leaves the config's own 0.
ModelConfig resolved(ModelConfig model, std::int64_t vocab, std::int64_t positions);

/// Errors: UsageError that names the keys and the remedy, where sizes are missing or do not fit
/// one another. What a grid can cut is checked by the layers.
void validate(const ModelConfig& model);

/// The one list of the section's keys; parsing, help, printing and docs follow from it.
void list_options(ModelConfig& model, OptionList& list);

}  // namespace axonn
