#include "axonn/network/model/known_models.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"

namespace axonn {

namespace {

/// All models: families one after another, and their types.
const std::vector<ModelConfig>& all_models() {
  static const std::vector<ModelConfig> kAll = [] {
    std::vector<ModelConfig> models;
    for (const Family* const family : families())
      for (const ModelType& type : family->types())
        if (type.known) std::ranges::move(type.known(), std::back_inserter(models));
    return models;
  }();
  return kAll;
}

}  // namespace

ModelConfig known_model(std::string_view name) {
  const auto& models = all_models();
  const auto found = std::ranges::find(models, name, &ModelConfig::name);
  if (found != models.end()) return *found;
  std::vector<std::string> names;
  for (const ModelConfig& model : models) names.push_back(model.name);
  const std::vector<std::string> guesses = nearest(name, names);
  refuse("there is no model '", name, "'",
         guesses.empty() ? "; the known names are " + join(names) : did_you_mean(guesses));
}

std::span<const std::string_view> model_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names{"none"};
    for (const ModelConfig& model : all_models()) names.emplace_back(model.name);
    return names;
  }();
  return kNames;
}

}  // namespace axonn
