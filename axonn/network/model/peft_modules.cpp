#include "axonn/network/model/peft_modules.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "axonn/data/storage/safetensors/safetensors_source.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/model.h"
#include "axonn/network/model/peft.h"
#include "axonn/network/nn/adapters/layer_adapters.h"
#include "axonn/ranks/comm/self.h"

namespace axonn {

namespace {

constexpr std::string_view kFactorA = ".lora_A.weight", kFactorB = ".lora_B.weight",
                           kOfMagnitude = ".lora_magnitude_vector", kOfModule = ".weight";

std::string without(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

/// All products of the model that can have adapters.
std::vector<std::string> adaptable_products(ModelConfig model) {
  model.lora = {.rank = 1};
  const auto world = make_self();
  const Grid grid(*world, {});
  const std::unique_ptr<Model> made = make_model(model, grid);
  std::vector<std::string> products;
  for (const ParameterGroup* const group : made->groups())
    for (const auto& parameter : group->parameters())
      if (const std::string& name = parameter->spec().name; name.ends_with(kFactorA))
        products.push_back(without(name, kFactorA));
  return products;
}

/// The names that files of a model's type may have for the weight of a product.
class StoredProducts {
 public:
  explicit StoredProducts(const ModelConfig& model)
      : model_(model), family_(find_family(model)), type_(find_type(*family_, model)) {}

  StoredName weight(const std::string& product) const {
    return family_->stored_name(model_, type_, concat(product, kOfModule));
  }
  /// The adapter that `lora`, by the files' names, gives a product.
  std::optional<LayerAdapter> adapter(const LoraConfig& lora, const std::string& product) const {
    const StoredName stored = weight(product);
    for (const std::string& name : stored.joined.usual ? stored.joined.names : stored.names)
      if (auto found = layer_adapter(lora, without(name, kOfModule))) return found;
    return {};
  }
  /// The module that has the product, without a prefix.
  std::string module(const std::string& product) const {
    const StoredName stored = weight(product);
    if (stored.joined.usual) return without(stored.joined.names.front(), kOfModule);
    const bool renamed =
        std::ranges::find(stored.names, concat(product, kOfModule)) == stored.names.end();
    return renamed ? without(stored.names.front(), kOfModule) : product;
  }

 private:
  const ModelConfig& model_;
  const Family* family_;
  const ModelType* type_;
};

/// A product's adapter as a part of its module's.
struct AdapterPart {
  StoredParameter a, b;
  std::optional<StoredParameter> magnitude;
  LayerAdapter adapter;
  StoredName::Joined joined;  ///< of the weight

  /// The row of the module's B for row `row` of this one's.
  std::int64_t row_of_module(std::int64_t row) const {
    const std::int64_t each = b.rows / joined.turns, turn = row / each;
    return joined.first + turn * (joined.rows / joined.turns) + row - turn * each;
  }
};

/// Serves factors of modules of several products, of which each is made when it is read, and the
/// other parameters of a source.
class PeftSource final : public ParameterSource {
 public:
  struct Module {
    std::string name, a_name, b_name, magnitude_name;  ///< the last three: of tensors
    std::vector<AdapterPart> parts;

    std::int64_t rank() const {
      std::int64_t sum = 0;
      for (const AdapterPart& part : parts) sum += part.adapter.rank;
      return sum;
    }
    std::int64_t rows() const { return parts.front().joined.rows; }
    double scale() const { return parts.front().adapter.scale(); }
    StoredParameter a() const { return {a_name, rank(), parts.front().a.cols}; }
    StoredParameter b() const { return {b_name, rows(), rank()}; }
  };

  PeftSource(std::unique_ptr<ParameterSource> source, std::vector<Module> modules,
             std::vector<StoredParameter> parameters)
      : ParameterSource(source->path(), std::move(parameters)),
        source_(std::move(source)),
        modules_(std::move(modules)) {}

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::int64_t cols = fill(wanted[i].parameter);
      if (cols == 0) {
        bytes +=
            source_->read({&wanted[i], 1}, [&](std::size_t, std::int64_t offset, StoredType type,
                                               auto values) { take(i, offset, type, values); });
        continue;
      }
      for (const Slice& slice : wanted[i].slices) {
        if (slice.count() == 0) continue;
        std::vector<float> values(slice.count());
        for (std::int64_t e = slice.begin; e < slice.end; ++e)
          values[e - slice.begin] =
              whole_[(slice.row + e / slice.cols) * cols + slice.col + e % slice.cols];
        take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(values)));
        bytes += std::ssize(values) * bytes_of(StoredType::f32);
      }
    }
    return bytes;
  }

 private:
  /// Makes a factor of a module; returns its columns, or 0 for another parameter.
  std::int64_t fill(const std::string& factor) {
    for (const Module& module : modules_) {
      if (factor == module.a_name) return fill_a(module);
      if (factor == module.b_name) return fill_b(module);
      if (factor == module.magnitude_name) return fill_magnitude(module);
    }
    return 0;
  }
  std::int64_t fill_a(const Module& module) {
    whole_.clear();
    for (const AdapterPart& part : module.parts) {
      const std::vector<float> a = values_of(part.a);
      whole_.insert(whole_.end(), a.begin(), a.end());
    }
    return module.a().cols;
  }
  std::int64_t fill_b(const Module& module) {
    const StoredParameter all = module.b();
    whole_.assign(all.count(), 0);
    std::int64_t first = 0;  // column
    for (const AdapterPart& part : module.parts) {
      const std::vector<float> b = values_of(part.b);
      const auto factor = static_cast<float>(part.adapter.scale() / module.scale());
      for (std::int64_t row = 0; row < part.b.rows; ++row)
        for (std::int64_t col = 0; col < part.b.cols; ++col)
          whole_[part.row_of_module(row) * all.cols + first + col] =
              factor * b[row * part.b.cols + col];
      first += part.b.cols;
    }
    return all.cols;
  }
  std::int64_t fill_magnitude(const Module& module) {
    whole_.assign(module.rows(), 0);
    for (const AdapterPart& part : module.parts) {
      const std::vector<float> values = values_of(*part.magnitude);
      for (std::int64_t row = 0; row < std::ssize(values); ++row)
        whole_[part.row_of_module(row)] = values[row];
    }
    return 1;
  }
  std::vector<float> values_of(const StoredParameter& parameter) {
    std::vector<float> values(parameter.count());
    source_->read_slice(parameter.name,
                        {.rows = parameter.rows, .cols = parameter.cols, .end = parameter.count()},
                        values);
    return values;
  }

  std::unique_ptr<ParameterSource> source_;
  std::vector<Module> modules_;
  std::vector<float> whole_;
};

/// The magnitudes of a module. Throws UsageError if a product of it has none, for which PEFT would
/// need those of the base.
StoredParameter whole_magnitude(const PeftSource::Module& module) {
  std::int64_t rows = 0;
  for (const AdapterPart& part : module.parts) rows += part.b.rows;
  if (rows != module.rows())
    refuse("adapters with magnitudes of a part of '", module.name, "' have no PEFT format, which ",
           "has magnitudes of all of its rows; merge them into their base model with ",
           "axonn convert --merge");
  return {module.magnitude_name, rows, 1};
}

}  // namespace

LoraConfig adapters_in_model(const ModelConfig& model, LoraConfig stored) {
  if (!find_family(model)) return stored;
  const StoredProducts products(model);
  std::vector<AdaptedModule> adapted;
  bool same = true;
  for (const std::string& product : adaptable_products(model)) {
    const auto adapter = products.adapter(stored, product);
    if (adapter) adapted.push_back({product, *adapter});
    same &= adapter == layer_adapter(stored, product);
  }
  if (same || adapted.empty()) return stored;
  for (const std::string& end :
       {without(std::string(find_family(model)->embedding), kOfModule), std::string("lm_head")})
    if (const auto adapter = layer_adapter(stored, end)) adapted.push_back({end, *adapter});
  stored.targets.clear();  // short ones could be of products that files join
  set_layers(stored, adapted);
  return stored;
}

PeftAdapters peft_adapters(std::unique_ptr<ParameterSource> source, const ModelConfig& model) {
  AXONN_CHECK(find_family(model), "peft_adapters: a registered family has no PEFT format");
  const StoredProducts products(model);
  const TensorNames names = adapter_names(model);
  PeftAdapters adapters;
  std::vector<PeftSource::Module> modules;
  std::vector<StoredParameter> parameters = source->parameters();
  const auto taken = [&parameters](const std::string& name) -> std::optional<StoredParameter> {
    const auto found = std::ranges::find(parameters, name, &StoredParameter::name);
    if (found == parameters.end()) return {};
    StoredParameter parameter = *found;
    parameters.erase(found);
    return parameter;
  };
  for (const StoredParameter& a : source->parameters()) {
    if (!a.name.ends_with(kFactorA)) {
      if (a.name.find(".lora_") == a.name.npos) adapters.whole.push_back(a.name);
      continue;
    }
    const std::string product = without(a.name, kFactorA), module = products.module(product);
    const auto adapter = layer_adapter(model.lora, product);
    AXONN_CHECK(adapter, "peft_adapters: ", product, " has no rank");
    const StoredName stored = products.weight(product);
    if (!stored.joined.usual) {
      adapters.modules.push_back({module, *adapter});
      continue;
    }
    AXONN_CHECK(stored.joined.step == 1 && stored.joined.outer == 0, "peft_adapters: rows of ",
                product, " are not one after another in their tensor");
    taken(a.name);
    const std::string b = concat(product, kFactorB), of_magnitude = concat(product, kOfMagnitude);
    auto found = std::ranges::find(modules, module, &PeftSource::Module::name);
    if (found == modules.end())
      found = modules.insert(found, {.name = module,
                                     .a_name = names.of(a.name).names.front(),
                                     .b_name = names.of(b).joined.names.front(),
                                     .magnitude_name = names.of(of_magnitude).joined.names.front(),
                                     .parts = {}});
    found->parts.push_back({a, taken(b).value(), taken(of_magnitude), *adapter, stored.joined});
  }
  for (const PeftSource::Module& module : modules) {
    const auto rank = static_cast<double>(module.rank());
    adapters.modules.push_back({module.name, {module.rank(), module.scale() * rank}});
    parameters.push_back(module.a());
    parameters.push_back(module.b());
    if (module.parts.front().magnitude) parameters.push_back(whole_magnitude(module));
  }
  adapters.source =
      std::make_unique<PeftSource>(std::move(source), std::move(modules), std::move(parameters));
  return adapters;
}

}  // namespace axonn
