#include "axonn/network/model/quantized_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "axonn/network/model/model.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/parallel/quantized_run.h"

namespace axonn {

namespace {

using Names = std::set<std::string, std::less<>>;

class QuantizedSource final : public ParameterSource {
 public:
  QuantizedSource(std::unique_ptr<ParameterSource> base, Quantization kind, Names names)
      : ParameterSource(base->path(), base->parameters()),
        base_(std::move(base)),
        kind_(kind),
        names_(std::move(names)) {}

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override {
    std::vector<SliceRequest> others;
    std::vector<std::size_t> numbers;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (names_.contains(wanted[i].parameter)) continue;
      others.push_back(wanted[i]);
      numbers.push_back(i);
    }
    bytes += base_->read(
        others, [&](std::size_t i, std::int64_t offset, StoredType type,
                    std::span<const std::byte> values) { take(numbers[i], offset, type, values); });
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (names_.contains(wanted[i].parameter))
        for (const Slice& slice : wanted[i].slices)
          bytes += read_quantized(
              wanted[i].parameter, slice,
              [&](std::int64_t offset, auto values) { take(i, offset, StoredType::f32, values); });
    return bytes;
  }

 private:
  std::int64_t read_quantized(const std::string& name, const Slice& slice, const auto& take) {
    const auto found = std::ranges::find(parameters(), name, &StoredParameter::name);
    const QuantizedMatrix matrix{kind_, name, found->rows, found->cols};
    std::int64_t bytes = 0;
    QuantizedRun run;
    std::vector<float> values;
    const MatrixBlocks from{
        .values = [&](const Slice& part,
                      std::span<float> out) { bytes += base_->read_slice(name, part, out); },
        .records =
            [&](std::int64_t first, std::span<std::byte> out) {
              const auto read = base_->read_records(name, kind_, first, out);
              bytes += read.value_or(0);
              return read.has_value();
            }};
    for_quantizable_parts(matrix, slice, [&](const Slice& part) {
      quantize_blocks(matrix, part, from, run);
      values.resize(part.count());
      for (std::int64_t e = part.begin; e < part.end; ++e) {
        const std::int64_t at =
            (part.row + e / part.cols) * matrix.cols + part.col + e % part.cols - run.begin;
        values[e - part.begin] = run.values.value(kind_, at, run.block);
      }
      take(part.offset, std::as_bytes(std::span(values)));
    });
    return bytes;
  }

  std::unique_ptr<ParameterSource> base_;
  Quantization kind_;
  Names names_;
};

}  // namespace

std::unique_ptr<ParameterSource> quantized_source(std::unique_ptr<ParameterSource> base,
                                                  const ModelConfig& model) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto whole = make_model(model, grid);
  Names names;
  for (const ParameterGroup* group : whole->groups())
    if (group->quantization() != Quantization::none)
      for (const auto& parameter : group->parameters()) names.insert(parameter->spec().name);
  return std::make_unique<QuantizedSource>(std::move(base), model.quantize, std::move(names));
}

}  // namespace axonn
