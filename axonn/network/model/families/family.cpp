#include "axonn/network/model/families/family.h"

#include <algorithm>
#include <array>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/gpt/gpt.h"
#include "axonn/network/model/families/llama/llama.h"
#include "axonn/network/model/families/opt/opt.h"

namespace axonn {

std::span<const Family* const> families() {
  static constexpr std::array kFamilies{&kGptFamily, &kLlamaFamily, &kOptFamily};
  return kFamilies;
}

const Family* find_family(const ModelConfig& model) {
  const auto i = static_cast<std::size_t>(model.family);
  return i < families().size() ? families()[i] : nullptr;
}

const ModelType* find_type(const Family& family, const ModelConfig& model) {
  for (const ModelType& type : family.types())
    if (family.is_of_type(model, type)) return &type;
  return nullptr;
}

const ModelType& need_type(const Family& family, const ModelConfig& model) {
  if (const ModelType* const found = find_type(family, model)) return *found;
  std::vector<std::string> types;
  for (const ModelType& type : family.types())
    if (const std::string options = family.type_options(type.defaults); !options.empty())
      types.push_back(concat(type.name, " has ", options));
  refuse("[model] ", family.type_options(model),
         ": no model type of Hugging Face that is supported here has just these options; ",
         join(types, "; "));
}

std::string why_sizes_unread(const ModelConfig& model) {
  return model.path.empty() ? "" : "the checkpoint at model.path has its own sizes";
}

std::string why_unread(const Family& family, const ModelConfig& model) {
  const Family* const own = find_family(model);
  if (!model.path.empty() || !own || own == &family) return why_sizes_unread(model);
  return concat("model.family is ", own->name);
}

void add_known(std::vector<ModelConfig>& models, ModelConfig model,
               std::initializer_list<KnownSizes> all) {
  for (const KnownSizes& sizes : all) {
    model.name = sizes.name;
    model.layers = sizes.layers;
    model.hidden = sizes.hidden;
    model.heads = sizes.heads;
    model.kv_heads = sizes.kv_heads;
    model.ffn = sizes.ffn;
    models.push_back(model);
  }
}

}  // namespace axonn
