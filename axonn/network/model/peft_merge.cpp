#include "axonn/network/model/peft_merge.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/merged_source.h"

namespace axonn {

namespace {

constexpr std::string_view kWeightEnd = ".weight";

std::string without_end(const std::string& name) { return name.substr(0, name.rfind('.')); }

/// Whether PEFT trains this parameter whole: by modules_to_save or as a bias.
bool is_saved(const StoredAdapterConfig& stored, const std::string& parameter) {
  if (stored.bias != "none" && parameter.ends_with(".bias")) return true;
  for (std::string module = without_end(parameter);; module = without_end(module)) {
    for (const std::string& name : stored.layers.saved)
      if (module.ends_with(name)) return true;
    if (module.find('.') == module.npos) return false;
  }
}

/// Collects which tensors of a folder change which parameters.
class PeftMerge {
 public:
  PeftMerge(const SafetensorsFolder& folder, const StoredAdapterConfig& stored,
            const ModelConfig& model)
      : folder_(folder), stored_(stored), names_(adapter_names(model)) {}

  void add(const StoredParameter& parameter) {
    const StoredName whole = names_.of(parameter.name);
    for (const std::string& name : whole.names) {
      const std::string module = without_end(name), end = name.substr(module.size());
      if (has(name)) {
        if (!is_saved(stored_, name))
          refuse(folder_.path(), " has '", name, "', which modules_to_save in its ",
                 "adapter_config.json leaves out, so PEFT does not read it; name it there");
        own(parameter, {.names = {name}, .transposed = whole.transposed});
      } else if (const std::string base = module + ".base_layer" + end; has(base)) {
        own(parameter, {.names = {base}, .transposed = whole.transposed});
      }
      if (end == kWeightEnd) add_factors(parameter, module);
    }
  }

  /// Gives a parameter that shares memory with another one the stored base layer of that, too.
  void share(const std::string& from, const StoredParameter& to) {
    const auto found = stored_names.find(from);
    if (found == stored_names.end() || stored_names.contains(to.name)) return;
    const StoredName name = found->second;
    if (name.names.front().ends_with(".base_layer.weight")) own(to, name);
  }

  std::vector<StoredParameter> parameters;  // of the folder
  std::map<std::string, StoredName> stored_names;
  std::map<std::string, MergedFactors, std::less<>> factors;

 private:
  bool has(const std::string& name) const { return folder_.find(name).entry != nullptr; }

  void own(StoredParameter parameter, StoredName name) {
    stored_names[parameter.name] = std::move(name);
    parameters.push_back(std::move(parameter));
  }

  void add_factors(const StoredParameter& weight, const std::string& module) {
    const bool embedding = has(module + ".lora_embedding_A");
    if (!embedding && !has(module + ".lora_A.weight")) return;
    const auto adapter = peft_adapter(stored_.layers, without_peft_prefix(module));
    if (!adapter) refuse_left_out(folder_.path(), without_peft_prefix(module));
    const std::string here = without_end(weight.name);
    MergedFactors found{.a = {here + ".lora_A.weight", adapter->rank, weight.cols},
                        .b = {here + ".lora_B.weight", weight.rows, adapter->rank},
                        .scale = adapter->scale()};
    // An embedding's A is (r, vocabulary) and its B (width, r).
    own(found.a, {.names = {module + (embedding ? ".lora_embedding_B" : ".lora_A.weight")},
                  .transposed = embedding});
    own(found.b, {.names = {module + (embedding ? ".lora_embedding_A" : ".lora_B.weight")},
                  .transposed = embedding});
    if (stored_.lora.dora) {
      if (embedding)
        refuse(folder_.path(), ": DoRA of the embedding is not supported; merge it with PEFT's ",
               "merge_and_unload() and save the model");
      found.magnitude = {here + ".lora_magnitude_vector", weight.rows, 1};
      own(*found.magnitude,
          {.names = {module + ".lora_magnitude_vector", module + ".lora_magnitude_vector.weight"}});
    }
    factors[weight.name] = std::move(found);
  }

  const SafetensorsFolder& folder_;
  const StoredAdapterConfig& stored_;
  TensorNames names_;
};

}  // namespace

bool changes_ends(const ModelConfig& model) {
  const Family* const family = find_family(model);
  if (!family || model.lora.rank == 0) return false;
  return std::ranges::any_of(
      std::array{kHeadWeight, family->embedding}, [&](std::string_view weight) {
        const std::string module = without_end(std::string(weight));
        return trains_whole(model.lora, weight) ||
               (!model.lora.targets.empty() && layer_adapter(model.lora, module));
      });
}

bool needs_merging(const StoredAdapterConfig& stored, std::span<const std::string> tensors) {
  const auto plain = [](const std::string& tensor) {
    return block_number(tensor) &&
           (tensor.ends_with(".lora_A.weight") || tensor.ends_with(".lora_B.weight") ||
            tensor.ends_with(".lora_magnitude_vector") ||
            tensor.ends_with(".lora_magnitude_vector.weight"));
  };
  // Modules that PEFT would go on training, even if the file does not have them.
  const bool more = stored.bias != "none" || !stored.layers.saved.empty();
  return more || !std::ranges::all_of(tensors, plain);
}

namespace {

/// The name in the base model's folder of a base layer, without PEFT's prefix; "" of others.
std::string name_in_base(std::string tensor) {
  constexpr std::string_view kBase = ".base_layer";
  const std::size_t at = tensor.find(kBase);
  return at == tensor.npos ? "" : without_peft_prefix(tensor.erase(at, kBase.size()));
}

}  // namespace

LoraConfig adapters_to_train(const StoredAdapterConfig& stored, const SafetensorsFolder& folder,
                             const SafetensorsFolder& base, const ModelConfig& model) {
  const std::string& path = folder.path();
  const std::string remedy = concat("; merge it into its base with axonn convert --model BASE ",
                                    "--adapter ", path, " --out MERGED, and train MERGED");
  if (stored.bias != "none") refuse(path, " has biases, which are not trained here", remedy);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : folder.tensors()) names.push_back(name);
  for (const std::string& module : stored.layers.saved)
    if (std::ranges::none_of(names, [&](const std::string& name) {
          return without_end(without_peft_prefix(name)).ends_with(module);
        }))
      refuse(path, ": modules_to_save has '", module, "', but there are no tensors of it", remedy);
  for (const auto& [name, tensor] : folder.tensors()) {
    std::string other = name_in_base(name);
    if (other.empty()) continue;
    if (model.tied && other == kHeadWeight) other = find_family(model)->embedding;
    SafetensorsFolder::Tensor found;
    for (const std::string& spelling : base_names(model).of(other).names)
      if (!found.entry) found = base.find(spelling);
    if (!found.entry) found = base.find(other);
    if (!found.entry || !same_values(tensor, found))
      refuse(path, " has '", name, "' with other values than those of ", base.path(), remedy);
  }
  return stored_adapters(stored, names, path);
}

bool unties(std::span<const std::string> tensors) {
  return std::ranges::any_of(tensors, [](const std::string& tensor) {
    return std::ranges::any_of(
        std::array{".lm_head.", ".embed_tokens.", ".wte."},
        [&](const char* module) { return tensor.find(module) != tensor.npos; });
  });
}

std::vector<StoredParameter> base_parameters(std::vector<StoredParameter> parameters, bool tied) {
  if (tied) std::erase_if(parameters, [](const auto& one) { return one.name == kHeadWeight; });
  return parameters;
}

std::unique_ptr<ParameterSource> merged_source(std::unique_ptr<ParameterSource> base,
                                               SafetensorsFolder folder,
                                               const StoredAdapterConfig& stored,
                                               const ModelConfig& model,
                                               std::vector<StoredParameter> parameters) {
  const Family* const family = find_family(model);
  AXONN_CHECK(family, "merged_source: a registered family has no PEFT format");
  const auto is_head = [](const StoredParameter& one) { return one.name == kHeadWeight; };
  MergedSource::Parts parts;
  const bool head = std::ranges::any_of(parameters, is_head),
             tied = head && std::ranges::none_of(base->parameters(), is_head);
  if (tied) parts.aliases.emplace(kHeadWeight, family->embedding);
  if (tied && stored.ties)
    refuse(folder.path(), ": ensure_weight_tying is not supported for a tied model; merge the ",
           "adapters with PEFT's merge_and_unload() and save the model");
  PeftMerge merge(folder, stored, model);
  for (const StoredParameter& parameter : parameters) merge.add(parameter);
  for (const StoredParameter& parameter : parameters) {
    if (tied && is_head(parameter)) merge.share(std::string(family->embedding), parameter);
    if (tied && parameter.name == family->embedding)
      merge.share(std::string(kHeadWeight), parameter);
  }
  const std::string config = folder.path() + "/adapter_config.json";
  const auto name_of = [names = std::move(merge.stored_names)](const std::string& parameter) {
    return names.at(parameter);
  };
  parts.base = std::move(base);
  parts.adapters = std::make_unique<SafetensorsSource>(
      std::move(folder), std::move(merge.parameters),
      TensorNames{
          .of = name_of, .passed_over = [](std::string_view) { return false; }, .config = config});
  parts.factors = std::move(merge.factors);
  return std::make_unique<MergedSource>(std::move(parameters), std::move(parts), 1);
}

}  // namespace axonn
