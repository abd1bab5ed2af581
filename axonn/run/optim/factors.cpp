#include "axonn/run/optim/factors.h"

#include <algorithm>

namespace axonn {

namespace {

constexpr std::int64_t kAlign = 32;  // elements: parts of the vector begin where caches' lines do

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

FactorLayout::FactorLayout(const ParameterGroup& group) : ranks_(group.grid().shape().ranks()) {
  std::int64_t end = 0;
  const auto take = [&](std::int64_t n) {
    const std::int64_t begin = end;
    end = round_up(begin + n, kAlign);
    count_ += n;
    return begin;
  };
  for (const auto& parameter : group.parameters()) {
    Factored one{.spec = &parameter->spec()};
    one.rows_begin = take(one.rows());
    if (!one.is_vector()) one.cols_begin = take(one.cols());
    indices_.emplace(one.spec, factored_.size());
    factored_.push_back(one);
  }
  piece_ = round_up(end, ranks_ * kAlign) / ranks_;
  const int rank = group.grid().world().rank();
  for (const Factored& one : factored_) {
    add_slice(0, *one.spec, one.rows_begin, rank);
    if (!one.is_vector()) add_slice(1, *one.spec, one.cols_begin, rank);
  }
}

void FactorLayout::add_slice(std::size_t kind, const ParameterSpec& spec, std::int64_t begin,
                             int rank) {
  const std::int64_t rows = kind == 0 ? spec.layout.rows : 1,
                     cols = kind == 1 ? spec.layout.cols : 1, mine = rank * piece_;
  const Slice whole{.rows = rows, .cols = cols, .end = rows * cols, .offset = begin, .owned = true};
  for (const Slice& slice : clip({whole}, mine, mine + piece_))
    slices_[kind].push_back({&spec, slice});
}

}  // namespace axonn
