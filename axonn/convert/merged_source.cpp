#include "axonn/convert/merged_source.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

MergedSource::MergedSource(std::unique_ptr<ParameterSource> base,
                           std::unique_ptr<ParameterSource> adapters, float scale, int threads)
    : ParameterSource(base->path(), base->parameters()),
      base_(std::move(base)),
      adapters_(std::move(adapters)),
      backend_(make_cpu_backend(threads)),
      scale_(scale) {
  constexpr std::string_view kA = ".lora_A.weight";
  for (const StoredParameter& a : adapters_->parameters()) {
    if (!a.name.ends_with(kA)) continue;
    const std::string module = a.name.substr(0, a.name.size() - kA.size()),
                      b_name = module + ".lora_B.weight", weight = module + ".weight";
    const auto b = std::ranges::find(adapters_->parameters(), b_name, &StoredParameter::name);
    const auto whole = std::ranges::find(parameters(), weight, &StoredParameter::name);
    AXONN_CHECK(b != adapters_->parameters().end(), "there is no ", b_name);
    if (whole == parameters().end() || whole->rows != b->rows || whole->cols != a.cols)
      refuse(adapters_->path(), " has an adapter of ", weight, " (", b->rows, ", ", a.cols,
             "), which the model at ", path(), " does not have");
    factors_[weight] = {a, *b};
  }
}

void MergedSource::load(const Factors& factors) {
  if (loaded_ == &factors) return;
  loaded_ = nullptr;
  const auto read = [&](const auto& parameter, std::vector<float>& out) {
    const auto& [name, rows, cols] = parameter;
    out.resize(static_cast<std::size_t>(rows * cols));
    adapters_->read_slice(name, {.rows = rows, .cols = cols, .end = rows * cols}, out);
  };
  read(factors.a, a_);
  read(factors.b, b_);
  for (float& value : a_) value *= scale_;
  loaded_ = &factors;
}

/// Adds the slice of the product of the factors to values_.
void MergedSource::add(const Factors& factors, const Slice& slice) {
  AXONN_CHECK(slice.begin % slice.cols == 0 && slice.end % slice.cols == 0, factors.b.name,
              ": elements ", slice.begin, " to ", slice.end, " are not whole rows of ", slice.cols);
  load(factors);
  const auto view = [](std::span<float> values, std::int64_t rows, std::int64_t cols) {
    return View{.data = values.data(), .rows = rows, .cols = cols, .stride = cols};
  };
  const std::int64_t first = slice.row + slice.begin / slice.cols,
                     rows = slice.count() / slice.cols;
  backend_->matmul({.out = view(values_, rows, slice.cols),
                    .a = view(b_, factors.b.rows, factors.b.cols).row_range(first, rows),
                    .b = view(a_, factors.a.rows, factors.a.cols).col_range(slice.col, slice.cols),
                    .accumulate = true});
}

std::int64_t MergedSource::read(std::span<const SliceRequest> wanted, const TakeValues& take) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = factors_.find(wanted[i].parameter);
    if (found == factors_.end()) {
      bytes += base_->read({&wanted[i], 1}, [&](std::size_t, std::int64_t offset, StoredType type,
                                                auto values) { take(i, offset, type, values); });
      continue;
    }
    for (const Slice& slice : wanted[i].slices) {
      if (slice.count() == 0) continue;
      values_.resize(static_cast<std::size_t>(slice.count()));
      base_->read_slice(wanted[i].parameter, slice, values_);
      add(found->second, slice);
      take(i, slice.offset, StoredType::f32, std::as_bytes(std::span(values_)));
      bytes += slice.count() * bytes_of(StoredType::f32);
    }
  }
  return bytes;
}

}  // namespace axonn
