#include "axonn/network/nn/adapters/layer_adapters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

double number_of(const std::vector<std::string>& pattern, std::string_view layer,
                 double otherwise) {
  for (const std::string& entry : pattern)
    if (const LayerNumber own = parse_layer_number(entry); ends_with_name(layer, own.name))
      return own.number;
  return otherwise;
}

/// Whether an entry of `targets` names the layer: by its whole name, as files have it with a prefix
/// such as "transformer.", which counts in any block; or by an end of it.
bool is_target(const LoraConfig& config, std::string_view layer, std::string_view target) {
  if (ends_with_name(target, layer)) return true;
  if (!ends_with_name(layer, target)) return false;
  if (config.layers.empty()) return true;
  const auto block = block_number(layer);
  return block && std::ranges::find(config.layers, *block) != config.layers.end();
}

constexpr double kMostRank = 1 << 22;

void validate_pattern(const char* key, const std::vector<std::string>& pattern, bool ranks) {
  for (const std::string& entry : pattern) {
    const auto [name, number] = parse_layer_number(entry);
    const bool fits = std::isfinite(number) && number > 0 &&
                      (!ranks || (number == std::floor(number) && number <= kMostRank));
    if (!fits || name.empty() || name.find(' ') != name.npos)
      refuse("[lora] ", key, ": '", entry, "' is not the end of a layer's name and ",
             ranks ? "a rank of at least 1, such as \"q_proj 16\""
                   : "an alpha above 0, such as \"q_proj 32\"");
  }
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// The last parts of the layers' names, each once.
std::string last_parts(std::span<const std::string> layers) {
  std::vector<std::string> parts;
  std::string all;
  for (const std::string& layer : layers)
    if (const std::string part(last_part(layer)); std::ranges::find(parts, part) == parts.end()) {
      all += (parts.empty() ? "" : ", ") + part;
      parts.push_back(part);
    }
  return all;
}

}  // namespace

LayerNumber parse_layer_number(std::string_view entry) {
  const std::size_t space = entry.find_last_of(" =");
  if (space == entry.npos || space == 0) return {.name = entry};
  LayerNumber found{.name = entry.substr(0, entry.find_last_not_of(" =", space) + 1)};
  const std::string_view text = entry.substr(space + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found.number);
  if (error != std::errc{} || end != text.data() + text.size()) found.number = 0;
  return found;
}

bool ends_with_name(std::string_view layer, std::string_view name) {
  if (!layer.ends_with(name) || name.empty()) return false;
  return layer.size() == name.size() || layer[layer.size() - name.size() - 1] == '.';
}

std::optional<std::int64_t> block_number(std::string_view layer) {
  while (!layer.empty()) {
    const std::string_view part = layer.substr(0, layer.find('.'));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc{} && end == part.data() + part.size()) return number;
    layer.remove_prefix(std::min(part.size() + 1, layer.size()));
  }
  return {};
}

bool differs_by_block(const LoraConfig& config) {
  const auto names_block = [](const std::string& name) { return block_number(name).has_value(); };
  const auto entry_names_block = [&](const std::string& entry) {
    return names_block(std::string(parse_layer_number(entry).name));
  };
  return !config.layers.empty() || std::ranges::any_of(config.targets, names_block) ||
         std::ranges::any_of(config.modules, names_block) ||
         std::ranges::any_of(config.rank_pattern, entry_names_block) ||
         std::ranges::any_of(config.alpha_pattern, entry_names_block);
}

bool trains_whole(const LoraConfig& config, std::string_view parameter) {
  while (parameter.find('.') != parameter.npos) {
    parameter = parameter.substr(0, parameter.rfind('.'));
    for (const std::string& name : config.modules)
      if (ends_with_name(parameter, name) || ends_with_name(name, parameter)) return true;
  }
  return false;
}

std::optional<LayerAdapter> layer_adapter(const LoraConfig& config, std::string_view layer) {
  const auto names_layer = [&](const std::string& name) { return is_target(config, layer, name); };
  const bool target = config.targets.empty()
                          ? block_number(layer) && is_target(config, layer, last_part(layer))
                          : std::ranges::any_of(config.targets, names_layer);
  if (config.rank == 0 || !target || trains_whole(config, concat(layer, ".weight"))) return {};
  const auto rank = static_cast<double>(config.rank);
  return LayerAdapter{
      .rank = static_cast<std::int64_t>(number_of(config.rank_pattern, layer, rank)),
      .alpha = number_of(config.alpha_pattern, layer, config.alpha)};
}

void validate(const LoraConfig& config) {
  validate_pattern("rank_pattern", config.rank_pattern, true);
  validate_pattern("alpha_pattern", config.alpha_pattern, false);
  if (config.dora && config.dropout > 0)
    refuse("[lora] dora = true with dropout = ", config.dropout,
           ": adapters with magnitudes have no dropout here; set dropout = 0");
}

void check_layers(const LoraConfig& config, std::span<const std::string> layers) {
  if (config.rank == 0) return;
  const auto none = [&](const auto& fits) { return std::ranges::none_of(layers, fits); };
  for (const std::int64_t number : config.layers)
    if (none([&](const std::string& layer) { return block_number(layer) == number; }))
      refuse("[lora] layers: this model has no layer ", number, "; layers are counted from 0");
  for (const std::string& target : config.targets)
    if (none([&](const std::string& layer) { return is_target(config, layer, target); }))
      refuse("[lora] targets: there is no layer '", target, "' in this model; it has ",
             last_parts(layers));
  for (const auto& [key, pattern] :
       {std::pair{"rank_pattern", &config.rank_pattern}, {"alpha_pattern", &config.alpha_pattern}})
    for (const std::string& entry : *pattern)
      if (none([&](const std::string& layer) {
            return ends_with_name(layer, parse_layer_number(entry).name) &&
                   layer_adapter(config, layer);
          }))
        refuse("[lora] ", key, ": '", entry, "' is for no layer with an adapter; the model has ",
               last_parts(layers));
}

}  // namespace axonn
