#include "axonn/network/model/quantized_source.h"

#include <algorithm>
#include <utility>

#include "axonn/network/model/model.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/parallel/quantized_run.h"

namespace axonn {

namespace {

class QuantizedSource final : public ParameterSource {
 public:
  QuantizedSource(std::unique_ptr<ParameterSource> base, KeptKinds::ByName kinds)
      : ParameterSource(base->path(), base->parameters()),
        base_(std::move(base)),
        kinds_(std::move(kinds)) {}

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::vector<SliceRequest> others;
    std::vector<std::size_t> numbers;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (kinds_.contains(wanted[i].parameter)) continue;
      others.push_back(wanted[i]);
      numbers.push_back(i);
    }
    bytes += base_->read(
        others, [&](std::size_t i, std::int64_t offset, StoredType type,
                    std::span<const std::byte> values) { take(numbers[i], offset, type, values); });
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (kinds_.contains(wanted[i].parameter))
        for (const Slice& slice : wanted[i].slices)
          bytes += read_quantized(
              wanted[i].parameter, slice,
              [&](std::int64_t offset, auto values) { take(i, offset, StoredType::f32, values); });
    return bytes;
  }

 private:
  std::int64_t read_quantized(const std::string& name, const Slice& slice, const auto& take) {
    const auto found = std::ranges::find(parameters(), name, &StoredParameter::name);
    const Quantization kind = kinds_.find(name)->second;
    const QuantizedMatrix matrix{kind, name, found->rows, found->cols};
    std::int64_t bytes = 0;
    QuantizedRun run;
    std::vector<float> values;
    const MatrixBlocks from{
        .values = [&](const Slice& part,
                      std::span<float> out) { bytes += base_->read_slice(name, part, out); },
        .records =
            [&](std::int64_t first, std::span<std::byte> out) {
              const auto read = base_->read_records(name, kind, first, out);
              bytes += read.value_or(0);
              return read.has_value();
            }};
    for_quantizable_parts(matrix, slice, [&](const Slice& part) {
      quantize_blocks(matrix, part, from, run);
      values.resize(part.count());
      for (std::int64_t e = part.begin; e < part.end; ++e) {
        const std::int64_t at = (part.row + e / part.cols) * matrix.cols + part.col + e % part.cols;
        values[e - part.begin] = run.value(at);
      }
      take(part.offset, std::as_bytes(std::span(values)));
    });
    return bytes;
  }

  std::unique_ptr<ParameterSource> base_;
  KeptKinds::ByName kinds_;
};

}  // namespace

std::unique_ptr<ParameterSource> quantized_source(std::unique_ptr<ParameterSource> base,
                                                  const ModelConfig& model) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto whole = make_model(model, grid);
  KeptKinds::ByName kinds;
  for (const ParameterGroup* group : whole->groups())
    if (group->quantization() != Quantization::none)
      for (const auto& parameter : group->parameters())
        kinds.emplace(parameter->spec().name, group->quantization());
  return std::make_unique<QuantizedSource>(std::move(base), std::move(kinds));
}

}  // namespace axonn
