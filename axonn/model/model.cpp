#include "axonn/model/model.h"

#include "axonn/model/gpt.h"
#include "axonn/model/llama.h"

namespace axonn {

std::vector<ParameterGroup*> trained_groups(Model& model) {
  std::vector<ParameterGroup*> groups = model.groups();
  std::erase_if(groups, [](const ParameterGroup* group) { return group->frozen(); });
  return groups;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid) {
  if (config.family == ModelFamily::llama) return std::make_unique<Llama>(config, grid);
  return std::make_unique<Gpt>(config, grid);
}

}  // namespace axonn
