#include "axonn/model/model.h"

#include <algorithm>
#include <array>
#include <deque>

#include "axonn/base/check.h"
#include "axonn/model/gpt.h"
#include "axonn/model/llama.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

constexpr std::size_t kOwnFamilies = 2, kMostFamilies = 16;

/// All families: the library's, then the registered ones. Addresses stay, since options refer to
/// names and help texts.
struct Families {
  std::array<std::string_view, kMostFamilies> names = {"gpt", "llama"};
  std::deque<Architecture> registered;
};

Families& families() {
  static Families all;
  return all;
}

std::string key_of(const Architecture& architecture, const Architecture::Key& key) {
  return concat(architecture.name, '.', key.name);
}

}  // namespace

void register_architecture(Architecture architecture) {
  Families& all = families();
  const std::size_t count = model_families().size();
  AXONN_CHECK(std::ranges::find(model_families(), architecture.name) == model_families().end() &&
                  count < kMostFamilies,
              "register_architecture: the family '", architecture.name,
              "' exists already, or there are more than ", kMostFamilies);
  all.registered.push_back(std::move(architecture));
  all.names[count] = all.registered.back().name;
}

std::span<const std::string_view> model_families() {
  return std::span(families().names).first(kOwnFamilies + families().registered.size());
}

const Architecture* architecture_of(ModelFamily family) {
  const auto i = static_cast<std::size_t>(family);
  return i < kOwnFamilies ? nullptr : &families().registered.at(i - kOwnFamilies);
}

void list_own_options(ModelConfig& model, OptionList& list) {
  for (const Architecture& architecture : families().registered) {
    list.section(architecture.name, architecture.help);
    for (const Architecture::Key& key : architecture.keys) {
      ModelConfig::OwnValue& value =
          model.own_values.try_emplace(key_of(architecture, key), key.value).first->second;
      std::visit([&](auto& target) { list.add(key.name, &target, {.help = key.help}); }, value);
    }
  }
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid) {
  if (const Architecture* own = architecture_of(config.family)) return own->make(config, grid);
  if (config.family == ModelFamily::llama) return std::make_unique<Llama>(config, grid);
  return std::make_unique<Gpt>(config, grid);
}

std::vector<ParameterGroup*> trained_groups(Model& model) {
  std::vector<ParameterGroup*> groups = model.groups();
  std::erase_if(groups, [](const ParameterGroup* group) { return group->frozen(); });
  return groups;
}

}  // namespace axonn
