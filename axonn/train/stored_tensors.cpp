#include "axonn/train/stored_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/storage/stored_values.h"

namespace axonn {

namespace {

constexpr std::size_t kMostFaultsShown = 12;  // in an error message

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::int64_t extent : shape) text += concat(text.empty() ? "" : ", ", extent);
  return '(' + text + ')';
}

/// Finds the tensor of each parameter, and the tensors that belong to none.
class Matcher {
 public:
  Matcher(const SafetensorsFolder& folder, const TensorNames& names)
      : folder_(folder), names_(names) {}

  WantedSlices wanted(const ParameterSpec& spec) {
    const StoredName stored = names_.of(spec.name);
    const Layout& layout = spec.layout;
    WantedSlices wanted{.transposed = stored.transposed, .rows = layout.rows, .cols = layout.cols};
    for (const std::string& name : stored.names) {
      const SafetensorsFolder::Tensor tensor = folder_.find(name);
      if (!tensor.entry) continue;
      known_.insert(name);
      check(*tensor.entry, layout, stored.transposed);
      wanted.tensor = tensor;
      return wanted;
    }
    faults_.push_back(concat("there is no ", spec.name));
    return wanted;
  }

  void refuse_faults() {
    for (const auto& [name, tensor] : folder_.tensors())
      if (!known_.contains(name) && !names_.passed_over(name))
        faults_.push_back(concat(name, ' ', text_of(tensor.entry->shape), " is not known"));
    if (faults_.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < std::min(faults_.size(), kMostFaultsShown); ++i)
      text += "\n  " + faults_[i];
    if (faults_.size() > kMostFaultsShown)
      text += concat("\n  and ", faults_.size() - kMostFaultsShown, " more");
    refuse(folder_.path(), " does not hold the tensors that its ", names_.config,
           " describes:", text);
  }

 private:
  void check(const SafetensorsEntry& entry, const Layout& layout, bool transposed) {
    std::vector<std::int64_t> shape{layout.rows, layout.cols};
    if (transposed) std::swap(shape[0], shape[1]);
    const bool vector = layout.cols == 1 && entry.shape == std::vector{layout.rows};
    if (entry.shape != shape && !vector) {
      if (layout.cols == 1) shape.pop_back();
      faults_.push_back(
          concat(entry.name, " is ", text_of(entry.shape), ", wanted ", text_of(shape)));
    }
    if (!is_float(entry.type))
      faults_.push_back(concat(entry.name, " is ", name_of(entry.type),
                               ", which cannot be read; F32, BF16 and F16 can"));
  }

  const SafetensorsFolder& folder_;
  const TensorNames& names_;
  std::set<std::string, std::less<>> known_;
  std::vector<std::string> faults_;
};

}  // namespace

TensorNames base_names(const ModelConfig& config) {
  return {.of = [family = config.family](
                    const std::string& parameter) { return stored_name(family, parameter); },
          .passed_over = [config](std::string_view tensor) { return is_buffer(config, tensor); },
          .config = "config.json"};
}

TensorNames adapter_names(const ModelConfig& config) {
  return {
      .of = [family = config.family](
                const std::string& parameter) { return stored_adapter_name(family, parameter); },
      .passed_over = [](std::string_view) { return false; },
      .config = "adapter_config.json"};
}

std::vector<WantedSlices> find_tensors(const SafetensorsFolder& folder,
                                       const std::vector<const ParameterSpec*>& parameters,
                                       const TensorNames& names) {
  Matcher matcher(folder, names);
  std::vector<WantedSlices> found;
  for (const ParameterSpec* parameter : parameters) found.push_back(matcher.wanted(*parameter));
  matcher.refuse_faults();
  return found;
}

}  // namespace axonn
