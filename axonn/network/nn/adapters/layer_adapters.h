#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "axonn/network/nn/options.h"

namespace axonn {

/// What a layer's own adapter has.
struct LayerAdapter {
  std::int64_t rank = 0;
  double alpha = 0;

  double scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const LayerAdapter&) const = default;
};

/// The adapter of a layer, such as "model.layers.3.self_attn.q_proj"; empty if it has none.
std::optional<LayerAdapter> layer_adapter(const LoraConfig& config, std::string_view layer);
/// Whether a parameter, such as "lm_head.weight", is one of a module in LoraConfig::modules.
bool trains_whole(const LoraConfig& config, std::string_view parameter);
/// Whether `name` is the end of the layer's name, as "self_attn.q_proj" is above.
bool ends_with_name(std::string_view layer, std::string_view name);
/// The number of a layer's block, as 3 above: the first number between dots. Empty without one.
std::optional<std::int64_t> block_number(std::string_view layer);

/// An entry of rank_pattern or alpha_pattern: "q_proj 16".
struct LayerNumber {
  std::string_view name;
  double number = 0;  ///< 0: the entry is not a name and a number
};
LayerNumber parse_layer_number(std::string_view entry);

/// Throws UsageError unless the patterns are names with numbers: ranks of at least 1, alphas above
/// 0; and for dropout with magnitudes.
void validate(const LoraConfig& config);
/// Throws UsageError if an entry of the config is for none of a model's layers.
void check_layers(const LoraConfig& config, std::span<const std::string> layers);

}  // namespace axonn
