#include "axonn/network/model/coded_groups.h"

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

bool is_coded(const ParameterSpec& spec, Coded coded) {
  return spec.hidden == (coded == Coded::products) && spec.layout.row_axis && spec.layout.col_axis;
}

}  // namespace

CodedGroups::CodedGroups(ParameterGroup& group, const ModelConfig& config, Coded coded,
                         Holders holders) {
  if (coded == Coded::ends && !config.codes_ends()) return;
  for (std::size_t i = 0; i < kQuantizations.size(); ++i) {
    const auto kind = static_cast<Quantization>(i);
    if (kind == Quantization::none || !config.kept().any_as(kind)) continue;
    ParameterGroup& codes = *groups_.emplace_back(std::make_unique<ParameterGroup>(
        concat(group.name(), " (", kQuantizations[i], ")"), group.grid(), holders));
    codes.set_rate(group.rate());
    codes.quantize(kind);
    group.divert(codes, [kind, coded, kept = config.kept()](const ParameterSpec& spec) {
      return is_coded(spec, coded) && kept.as(spec.name) == kind;
    });
  }
}

std::vector<ParameterGroup*> CodedGroups::groups() const {
  std::vector<ParameterGroup*> all;
  for (const auto& group : groups_)
    if (!group->parameters().empty()) all.push_back(group.get());
  return all;
}

}  // namespace axonn
