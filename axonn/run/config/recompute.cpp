#include "axonn/run/config/recompute.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

namespace {

constexpr std::string_view kAllName = "all";

std::vector<std::string> names_of_values(Recompute values) {
  if (values.is_all()) return {std::string(kAllName)};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kRemadeNames.size(); ++i)
    if (values.has(static_cast<Remade>(i))) names.emplace_back(kRemadeNames[i]);
  return names;
}

Recompute values_named(const std::vector<std::string>& names, std::string_view key) {
  Recompute values;
  for (const std::string& name : names) {
    if (name == kAllName && names.size() == 1) return Recompute::all();
    const auto found = std::ranges::find(kRemadeNames, name);
    if (found == kRemadeNames.end()) {
      std::string known;
      for (const std::string_view one : kRemadeNames) known += concat(one, ", ");
      refuse("[activation_checkpoint] ", key, ": unknown value '", name, "'; choose from ", known,
             "or give only all");
    }
    values.add(static_cast<Remade>(found - kRemadeNames.begin()));
  }
  return values;
}

/// "norms, activations and up"
std::string text_of(Recompute values) {
  if (values.is_all()) return "everything";
  const std::vector<std::string> names = names_of_values(values);
  if (names.empty()) return "nothing";
  std::string text = names.front();
  for (std::size_t i = 1; i < names.size(); ++i)
    text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

}  // namespace

RecomputedBlocks recomputed_blocks(const RecomputeConfig& config) {
  switch (config.mode) {
    case RecomputeMode::none:
      return {.first = config.blocks, .of_first = Recompute::light()};
    case RecomputeMode::light:
      return {config.blocks, Recompute::all(), Recompute::light()};
    case RecomputeMode::full:
      return {.of_others = Recompute::all()};
    case RecomputeMode::values:
      return {config.blocks, values_named(config.first_values, "first_values"),
              values_named(config.values, "values")};
  }
  return {};
}

void set_recomputed(RecomputeConfig& config, const RecomputedBlocks& blocks) {
  config.values.clear();
  config.first_values.clear();
  config.blocks = blocks.first;
  for (const RecomputeMode mode :
       {RecomputeMode::none, RecomputeMode::light, RecomputeMode::full}) {
    config.mode = mode;
    const RecomputedBlocks same = recomputed_blocks(config);
    if (same.of_others == blocks.of_others && same.first == blocks.first &&
        (blocks.first == 0 || same.of_first == blocks.of_first))
      return;
  }
  config.mode = RecomputeMode::values;
  config.values = names_of_values(blocks.of_others);
  if (blocks.first > 0) config.first_values = names_of_values(blocks.of_first);
}

std::string describe_recomputation(const Config& config) {
  const RecomputeConfig& recompute = config.activation_checkpoint;
  const RecomputedBlocks blocks = recomputed_blocks(recompute);
  const std::int64_t all = std::max<std::int64_t>(config.model.layers, 1),
                     first = std::min(blocks.first, all);
  const auto part = [](std::int64_t count, Recompute values) {
    return concat(count, count == 1 ? " block computes " : " blocks compute ", text_of(values),
                  " again");
  };
  std::string text;
  if (first == 0 || blocks.of_first == blocks.of_others)
    text = part(all, blocks.of_others);
  else if (first == all)
    text = part(all, blocks.of_first);
  else
    text = concat(part(first, blocks.of_first), ", ", all - first, ' ', text_of(blocks.of_others));
  if (recompute.budget > 0 && recompute.peak_bytes > 0)
    text += concat("; ", format_bytes(recompute.peak_bytes), " at the peak of a step, budget ",
                   format_bytes(recompute.budget));
  return text;
}

double fully_recomputed(const Config& config) {
  const RecomputedBlocks blocks = recomputed_blocks(config.activation_checkpoint);
  const double all = static_cast<double>(std::max<std::int64_t>(config.model.layers, 1)),
               first = std::min(static_cast<double>(blocks.first) / all, 1.0);
  return (blocks.of_first.is_all() ? first : 0) + (blocks.of_others.is_all() ? 1 - first : 0);
}

}  // namespace axonn
