#include "axonn/train/merged_source.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

MergedSource::MergedSource(const OpenedModel& base, const OpenedModel& adapters, int threads)
    : base_(base.source),
      adapters_(adapters.source),
      backend_(make_cpu_backend(threads)),
      scale_(static_cast<float>(adapters.config.lora.alpha /
                                static_cast<double>(adapters.config.lora.rank))) {
  constexpr std::string_view kA = ".lora_A.weight";
  for (const ParameterSpec& a : adapters.parameters) {
    if (!a.name.ends_with(kA)) continue;
    const std::string module = a.name.substr(0, a.name.size() - kA.size()),
                      b_name = module + ".lora_B.weight", weight = module + ".weight";
    const auto b = std::ranges::find(adapters.parameters, b_name, &ParameterSpec::name);
    const auto whole = std::ranges::find(base.parameters, weight, &ParameterSpec::name);
    AXONN_CHECK(b != adapters.parameters.end(), "there is no ", b_name);
    if (whole == base.parameters.end() || whole->layout.rows != b->layout.rows ||
        whole->layout.cols != a.layout.cols)
      refuse(adapters.path, " has an adapter of ", weight, " (", b->layout.rows, ", ",
             a.layout.cols, "), which the model at ", base.path, " does not have");
    factors_[weight] = {a.name, b_name, a.layout.rows, b->layout.rows, a.layout.cols};
  }
}

void MergedSource::load(const std::string& parameter, const Factors& factors) {
  if (loaded_ == parameter) return;
  loaded_.clear();
  const auto read = [&](const std::string& name, std::int64_t rows, std::int64_t cols,
                        std::vector<float>& out) {
    out.resize(static_cast<std::size_t>(rows * cols));
    adapters_->read(name, {.rows = rows, .cols = cols, .begin = 0, .end = rows * cols}, out);
  };
  read(factors.a_name, factors.rank, factors.cols, a_);
  read(factors.b_name, factors.rows, factors.rank, b_);
  for (float& value : a_) value *= scale_;
  loaded_ = parameter;
}

void MergedSource::read(const std::string& parameter, const Slice& slice, std::span<float> out) {
  base_->read(parameter, slice, out);
  const auto found = factors_.find(parameter);
  if (found == factors_.end() || slice.count() == 0) return;
  AXONN_CHECK(slice.begin % slice.cols == 0 && slice.end % slice.cols == 0, parameter,
              ": elements ", slice.begin, " to ", slice.end, " are not whole rows of ", slice.cols);
  const Factors& factors = found->second;
  load(parameter, factors);
  const auto view = [](std::span<float> values, std::int64_t rows, std::int64_t cols) {
    return View{.data = values.data(), .rows = rows, .cols = cols, .stride = cols};
  };
  const std::int64_t first = slice.row + slice.begin / slice.cols,
                     rows = slice.count() / slice.cols;
  backend_->matmul({.out = view(out, rows, slice.cols),
                    .a = view(b_, factors.rows, factors.rank).row_range(first, rows),
                    .b = view(a_, factors.rank, factors.cols).col_range(slice.col, slice.cols),
                    .accumulate = true});
}

}  // namespace axonn
