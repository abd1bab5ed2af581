#include "axonn/network/model/peft_layers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include <pcre2.h>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

struct FreePcre {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
template <typename T>
using Pcre = std::unique_ptr<T, FreePcre>;

// Names have about fifty characters; an expression that needs more steps than this is hostile.
constexpr std::uint32_t kMostSteps = 1'000'000;

/// Matches from the beginning of the text, as Python's re.match; `options` may ask for the whole.
/// Returns the value of the group "idx", "" if there is none; empty without a match.
std::optional<std::string> match(const std::string& regex, std::string_view text,
                                 std::uint32_t options = 0) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const Pcre<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()),
                                            regex.size(), PCRE2_UTF | PCRE2_ANCHORED | options,
                                            &error, &at, nullptr));
  if (!code)
    refuse("adapter_config.json: '", regex, "' is no regular expression, at character ", at);
  const Pcre<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Pcre<pcre2_match_data> data(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  AXONN_CHECK(context && data, "out of memory for a regular expression");
  pcre2_set_match_limit(context.get(), kMostSteps);
  const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                0, 0, data.get(), context.get());
  if (found == PCRE2_ERROR_NOMATCH) return {};
  if (found < 0) refuse("adapter_config.json: '", regex, "' cannot be matched with '", text, "'");
  const int group =
      pcre2_substring_number_from_name(code.get(), reinterpret_cast<PCRE2_SPTR>("idx"));
  if (group <= 0) return "";
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get()) + std::ptrdiff_t{2} * group;
  if (ends[0] == PCRE2_UNSET) return "";
  return std::string(text.substr(ends[0], ends[1] - ends[0]));
}

bool has_end(const ModuleNames& names, std::string_view module) {
  return std::ranges::any_of(names.ends,
                             [&](const std::string& name) { return ends_with_name(module, name); });
}

bool has_name(const ModuleNames& names, std::string_view module) {
  if (names.regex) return match(*names.regex, module, PCRE2_ENDANCHORED).has_value();
  return has_end(names, module);
}

/// Whether layers_to_transform names the module's block.
bool in_chosen_block(const PeftLayers& layers, std::string_view module) {
  constexpr std::string_view kIndex = R"(\.(?P<idx>\d+)\.)";
  std::optional<std::string> index;
  if (layers.containers.empty()) index = match(concat(R"(.*?\.[^.]*)", kIndex), module);
  for (const std::string& container : layers.containers)
    if (!index) index = match(concat(R"((?:^|.*?\.))", container, kIndex), module);
  std::int64_t number = -1;
  if (!index) return false;
  std::from_chars(index->data(), index->data() + index->size(), number);
  return std::ranges::find(layers.layers, number) != layers.layers.end();
}

bool is_target(const PeftLayers& layers, std::string_view module) {
  if (has_name(layers.excluded, module)) return false;
  for (const std::string& saved : layers.saved)
    if (match(concat(R"((^|.*\.))", saved, R"(($|\..*))"), module)) return false;
  if (layers.all) return block_number(module).has_value();  // not the output layer
  if (layers.targets.regex) return has_name(layers.targets, module);
  // A whole name counts in any block.
  if (std::ranges::find(layers.targets.ends, module) != layers.targets.ends.end()) return true;
  return has_end(layers.targets, module) &&
         (layers.layers.empty() || in_chosen_block(layers, module));
}

double pattern_number(const PeftLayers::Patterns& patterns, std::string_view module,
                      double otherwise) {
  for (const auto& [regex, number] : patterns)
    if (match(concat(R"((.*\.)?()", regex, ")$"), module)) return number;
  return otherwise;
}

/// "model.layers.0.self_attn.q_proj" is of block 0 in `layers`, at self_attn.q_proj; "lm_head" of
/// no block.
struct ModuleName {
  std::string container, path;
  std::int64_t block = 0;

  bool in_block() const { return !container.empty(); }
  std::string whole() const { return in_block() ? concat(container, '.', block, '.', path) : path; }
};

ModuleName module_of(const std::string& module) {
  const auto block = block_number(module);
  if (!block) return {.container = "", .path = module};
  const std::string middle = concat('.', *block, '.');
  const std::size_t at = module.find(middle);
  if (at == module.npos) refuse("adapters of '", module, "' are of no layer in a block");
  const std::string before = module.substr(0, at);
  return {.container = before.substr(before.rfind('.') + 1),
          .path = module.substr(at + middle.size()),
          .block = *block};
}

/// The adapted blocks of a path in a block.
struct PathBlocks {
  std::vector<ModuleName> modules;
  std::vector<LayerAdapter> adapters;
};

/// Appends to a pattern the numbers of a path that differ from `usual`.
void append(std::vector<std::string>& pattern, const std::string& path, const PathBlocks& blocks,
            double usual, double (*number)(const LayerAdapter&)) {
  const auto entry = [](const std::string& name, double value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
    return concat(name, ' ', std::string_view(text.data(), end - text.data()));
  };
  const double first = number(blocks.adapters.front());
  const bool same = std::ranges::all_of(
      blocks.adapters, [&](const LayerAdapter& own) { return number(own) == first; });
  if (same && first != usual) pattern.push_back(entry(path, first));
  for (std::size_t i = 0; i < blocks.modules.size() && !same; ++i)
    if (const double own = number(blocks.adapters[i]); own != usual)
      pattern.push_back(entry(blocks.modules[i].whole(), own));
}

}  // namespace

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::optional<LayerAdapter> peft_adapter(const PeftLayers& layers, std::string_view module) {
  if (!is_target(layers, module)) return {};
  const double rank = pattern_number(layers.ranks, module, static_cast<double>(layers.rank)),
               alpha = pattern_number(layers.alphas, module, layers.alpha);
  return LayerAdapter{.rank = static_cast<std::int64_t>(rank),
                      .alpha = layers.rslora ? alpha * std::sqrt(rank) : alpha};
}

void set_layers(LoraConfig& lora, std::span<const AdaptedModule> modules) {
  std::map<std::string, PathBlocks> paths;
  std::set<std::int64_t> blocks;
  for (const auto& [name, adapter] : modules) {
    const ModuleName module = module_of(name);
    if (module.in_block()) blocks.insert(module.block);
    paths[module.path].modules.push_back(module);
    paths[module.path].adapters.push_back(adapter);
  }
  const bool even = std::ranges::all_of(paths, [&](const auto& path) {
    const auto& named = path.second.modules;
    return !named.front().in_block() || named.size() == blocks.size();
  });
  const std::vector<std::string> kept = std::exchange(lora.targets, {});
  lora.layers.clear();
  lora.rank_pattern.clear();
  lora.alpha_pattern.clear();
  if (even) lora.layers.assign(blocks.begin(), blocks.end());
  const auto add = [&](const std::string& target) {
    if (std::ranges::find(lora.targets, target) == lora.targets.end())
      lora.targets.push_back(target);
  };
  for (const auto& [path, of_path] : paths) {
    const bool whole = of_path.modules.front().in_block() &&
                       std::ranges::find(kept, last_part(path)) != kept.end();
    if (even) add(whole ? last_part(path) : path);
    for (std::size_t i = 0; i < of_path.modules.size() && !even; ++i)
      add(of_path.modules[i].whole());
    append(lora.rank_pattern, path, of_path, static_cast<double>(lora.rank),
           [](const LayerAdapter& own) { return static_cast<double>(own.rank); });
    append(lora.alpha_pattern, path, of_path, lora.alpha,
           [](const LayerAdapter& own) { return own.alpha; });
  }
}

}  // namespace axonn
