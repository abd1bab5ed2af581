#include "axonn/train/pretrained.h"

#include <set>

#include "axonn/base/check.h"
#include "axonn/io/load_slices.h"
#include "axonn/io/stored_values.h"
#include "axonn/model/stored_names.h"

namespace axonn {

namespace {

constexpr std::size_t kMostShown = 12;  // of faults

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::int64_t extent : shape) text += concat(text.empty() ? "" : ", ", extent);
  return '(' + text + ')';
}

/// Finds the tensor of each parameter, and what of a folder belongs to none.
class Matcher {
 public:
  Matcher(const SafetensorsFolder& folder, const ModelConfig& config)
      : folder_(folder), config_(config) {}

  WantedSlices wanted(const ParameterSpec& spec) {
    const StoredName stored = stored_name(config_.family, spec.name);
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
      if (!known_.contains(name) && !is_buffer(config_, name))
        faults_.push_back(concat(name, ' ', text_of(tensor.entry->shape), " is not known"));
    if (faults_.empty()) return;
    std::string text;
    for (std::size_t i = 0; i < std::min(faults_.size(), kMostShown); ++i)
      text += "\n  " + faults_[i];
    if (faults_.size() > kMostShown)
      text += concat("\n  and ", faults_.size() - kMostShown, " more");
    refuse(folder_.path(), " does not hold the model that its config.json describes:", text);
  }

 private:
  void check(const SafetensorsEntry& entry, const Layout& layout, bool transposed) {
    std::vector<std::int64_t> shape{layout.rows};
    if (layout.cols != 1) shape.push_back(layout.cols);
    if (transposed) std::swap(shape[0], shape[1]);
    if (entry.shape != shape)
      faults_.push_back(
          concat(entry.name, " is ", text_of(entry.shape), ", wanted ", text_of(shape)));
    if (!is_float(entry.type))
      faults_.push_back(concat(entry.name, " is ", name_of(entry.type),
                               ", which is not read; F32, BF16 and F16 are"));
  }

  const SafetensorsFolder& folder_;
  const ModelConfig& config_;
  std::set<std::string, std::less<>> known_;
  std::vector<std::string> faults_;
};

}  // namespace

LoadCost load_pretrained(const Context& ctx, const ModelConfig& config,
                         const std::vector<ParameterGroup*>& groups,
                         const SafetensorsFolder& folder,
                         const CheckpointReader::Progress& progress) {
  Matcher matcher(folder, config);
  std::vector<WantedSlices> wanted;
  std::vector<ParameterGroup*> group_of;
  for (ParameterGroup* group : groups)
    for (const auto& parameter : group->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      WantedSlices one = matcher.wanted(spec);
      if (spec.layout.col_axis) one.across = &ctx.grid.along(*spec.layout.col_axis);
      for (const auto& [owner, slice] : group->piece_slices())
        if (owner == &spec) one.slices.push_back(slice);
      wanted.push_back(std::move(one));
      group_of.push_back(group);
    }
  matcher.refuse_faults();
  const LoadCost cost = load_slices(
      wanted,
      [&](std::size_t i, std::int64_t offset, std::span<const float> values) {
        group_of[i]->set_values(ctx, offset, values);
      },
      progress);
  for (ParameterGroup* group : groups) group->publish_values(ctx);
  return cost;
}

}  // namespace axonn
