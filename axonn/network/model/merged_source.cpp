#include "axonn/network/model/merged_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 20;

const StoredParameter* parameter_of(const ParameterSource& source, std::string_view name) {
  const auto found = std::ranges::find(source.parameters(), name, &StoredParameter::name);
  return found == source.parameters().end() ? nullptr : &*found;
}

View matrix(std::span<float> values, std::int64_t rows, std::int64_t cols) {
  return View{.data = values.data(), .rows = rows, .cols = cols, .stride = cols};
}

void read_all(ParameterSource& source, const StoredParameter& parameter, std::vector<float>& out) {
  const auto& [name, rows, cols] = parameter;
  out.resize(rows * cols);
  source.read_slice(name, {.rows = rows, .cols = cols, .end = rows * cols}, out);
}

}  // namespace

MergedSource::MergedSource(std::vector<StoredParameter> parameters, Parts parts, int threads)
    : ParameterSource(parts.base->path(), std::move(parameters)),
      parts_(std::move(parts)),
      backend_(make_cpu_backend(threads)) {
  for (const auto& [weight, factors] : parts_.factors) {
    const StoredParameter* const whole = parameter_of(*this, weight);
    const auto& [a, b, scale, magnitude] = factors;
    if (!whole || whole->rows != b.rows || whole->cols != a.cols)
      refuse(parts_.adapters->path(), " has an adapter of ", weight, " (", b.rows, ", ", a.cols,
             "), which the model at ", path(), " does not have");
  }
}

MergedSource::Origin MergedSource::origin_of(const std::string& parameter) const {
  if (parts_.adapters && parameter_of(*parts_.adapters, parameter))
    return {parts_.adapters.get(), parameter};
  const auto alias = parts_.aliases.find(parameter);
  if (alias == parts_.aliases.end()) return {parts_.base.get(), parameter};
  return {parts_.base.get(), alias->second};
}

std::int64_t MergedSource::read(std::span<const SliceRequest> wanted, const TakeValues& take) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = parts_.factors.find(wanted[i].parameter);
    if (found != parts_.factors.end()) {
      bytes += read_merged(wanted[i], found->second,
                           [&](std::int64_t offset, std::span<const float> values) {
                             take(i, offset, StoredType::f32, std::as_bytes(values));
                           });
      continue;
    }
    const Origin origin = origin_of(wanted[i].parameter);
    SliceRequest request = wanted[i];
    request.parameter = origin.name;
    bytes +=
        origin.source->read({&request, 1}, [&](std::size_t, std::int64_t offset, StoredType type,
                                               auto values) { take(i, offset, type, values); });
  }
  return bytes;
}

/// Passes on the elements of the slices, for which it reads the rows that they lie in.
std::int64_t MergedSource::read_merged(
    const SliceRequest& wanted, const MergedFactors& factors,
    const std::function<void(std::int64_t, std::span<const float>)>& take) {
  std::int64_t bytes = 0;
  for (const Slice& slice : wanted.slices) {
    if (slice.count() == 0) continue;
    load(wanted.parameter, factors);
    const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce / slice.cols),
                       last = (slice.end - 1) / slice.cols;
    for (std::int64_t row = slice.begin / slice.cols; row <= last; row += at_once) {
      Slice rows = slice;
      rows.begin = row * slice.cols;
      rows.end = std::min(row + at_once, last + 1) * slice.cols;
      read_sum(wanted.parameter, factors, rows);
      const std::int64_t first = slice.row + row;
      for (std::int64_t r = 0; r < rows.count() / slice.cols && !row_factors_.empty(); ++r)
        for (std::int64_t c = 0; c < slice.cols; ++c)
          values_[r * slice.cols + c] *= row_factors_[first + r];
      const std::int64_t begin = std::max(slice.begin, rows.begin),
                         end = std::min(slice.end, rows.end);
      take(slice.offset + begin - slice.begin,
           std::span(values_).subspan(begin - rows.begin, end - begin));
      bytes += rows.count() * bytes_of(StoredType::f32);
    }
  }
  return bytes;
}

void MergedSource::load(const std::string& weight, const MergedFactors& factors) {
  if (loaded_ == &factors) return;
  loaded_ = nullptr;
  read_all(*parts_.adapters, factors.a, a_);
  read_all(*parts_.adapters, factors.b, b_);
  for (float& value : a_) value *= static_cast<float>(factors.scale);
  row_factors_.clear();
  if (factors.magnitude) find_row_factors(weight, factors);
  loaded_ = &factors;
}

void MergedSource::find_row_factors(const std::string& weight, const MergedFactors& factors) {
  std::vector<float> magnitudes;
  read_all(*parts_.adapters, *factors.magnitude, magnitudes);
  const std::int64_t rows = factors.b.rows, cols = factors.a.cols,
                     at_once = std::max<std::int64_t>(1, kElementsAtOnce / cols);
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t end = std::min(rows, row + at_once);
    read_sum(weight, factors, {.rows = rows, .cols = cols, .begin = row * cols, .end = end * cols});
    for (std::int64_t r = row; r < end; ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < cols; ++c) {
        const double value = values_[(r - row) * cols + c];
        sum += value * value;
      }
      magnitudes[r] = static_cast<float>(magnitudes[r] / std::sqrt(sum));
    }
  }
  row_factors_ = std::move(magnitudes);
}

/// Sets values_ to these whole rows of a rectangle of W + scale · B · A.
void MergedSource::read_sum(const std::string& weight, const MergedFactors& factors,
                            const Slice& rows) {
  values_.resize(rows.count());
  const Origin origin = origin_of(weight);
  origin.source->read_slice(origin.name, rows, values_);
  const std::int64_t first = rows.row + rows.begin / rows.cols, count = rows.count() / rows.cols;
  const View a = matrix(a_, factors.a.rows, factors.a.cols),
             b = matrix(b_, factors.b.rows, factors.b.cols);
  backend_->matmul({.out = matrix(values_, count, rows.cols),
                    .a = b.row_range(first, count),
                    .b = a.col_range(rows.col, rows.cols),
                    .accumulate = true});
}

}  // namespace axonn
