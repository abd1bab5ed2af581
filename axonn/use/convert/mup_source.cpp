#include "axonn/use/convert/mup_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace axonn {

namespace {

/// The first rows of a parameter are multiplied by a factor.
struct RowFactor {
  std::int64_t rows = 0;
  float factor = 1;
};

/// The factor of a parameter, by its name; no rows: none.
RowFactor factor_of(const ModelConfig& model, const StoredParameter& parameter) {
  const std::string& name = parameter.name;
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  constexpr std::array kFinalNorms = {"ln_f.", "model.norm.", "model.decoder.final_layer_norm."};
  if (std::ranges::any_of(kFinalNorms, [&](const char* norm) { return name.starts_with(norm); }))
    return {parameter.rows, static_cast<float>(1 / model.width_factor())};
  if (model.mup_base_head_dim == 0) return {};
  const double width = static_cast<double>(model.head_width()),
               base = static_cast<double>(model.mup_base_head_dim);
  const auto factor = static_cast<float>(std::sqrt(base / width));
  if (ends(".attn.c_attn.weight") || ends(".attn.c_attn.bias"))  // queries, keys, values
    return {model.heads * model.head_width(), factor};
  const bool normed = model.qk_norm != QkNormKind::none;
  const bool queries = normed ? ends(".self_attn.q_norm.weight")
                              : ends(".self_attn.q_proj.weight") || ends(".self_attn.q_proj.bias");
  return queries ? RowFactor{parameter.rows, factor} : RowFactor{};
}

class FoldedSource final : public ParameterSource {
 public:
  FoldedSource(std::unique_ptr<ParameterSource> source, ModelConfig model)
      : ParameterSource(source->path(), source->parameters()),
        source_(std::move(source)),
        model_(std::move(model)) {}

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto parameter =
          std::ranges::find(parameters(), wanted[i].parameter, &StoredParameter::name);
      AXONN_CHECK(parameter != parameters().end(), "there is no ", wanted[i].parameter);
      const RowFactor scaled = factor_of(model_, *parameter);
      if (scaled.rows > 0) {
        bytes += read_scaled(wanted[i], scaled, i, take);
        continue;
      }
      bytes += source_->read({&wanted[i], 1}, [&](std::size_t, std::int64_t offset, StoredType type,
                                                  auto values) { take(i, offset, type, values); });
    }
    return bytes;
  }

 private:
  std::int64_t read_scaled(const SliceRequest& wanted, const RowFactor& scaled, std::size_t i,
                           const TakeValues& take) {
    std::int64_t bytes = 0;
    for (const Slice& slice : wanted.slices) {
      if (slice.count() == 0) continue;
      values_.resize(slice.count());
      source_->read_slice(wanted.parameter, slice, values_);
      for (std::int64_t e = slice.begin; e < slice.end; ++e)
        if (slice.row + e / slice.cols < scaled.rows) values_[e - slice.begin] *= scaled.factor;
      take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(values_)));
      bytes += slice.count() * bytes_of(StoredType::f32);
    }
    return bytes;
  }

  std::unique_ptr<ParameterSource> source_;
  ModelConfig model_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<ParameterSource> without_mup(std::unique_ptr<ParameterSource> source,
                                             const ModelConfig& model) {
  return std::make_unique<FoldedSource>(std::move(source), model);
}

ModelConfig without_mup(ModelConfig model) {
  model.mup_base = model.mup_base_head_dim = 0;
  return model;
}

}  // namespace axonn
