#include "axonn/ranks/parallel/whole_rows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/grid/sequence_cut.h"

namespace axonn {

namespace {

template <typename T>
std::vector<T> gather_parts(Communicator& among, std::vector<T> own) {
  std::vector<T> all(own.size() * among.size());
  among.all_gather(buffer(std::span(all)), buffer(std::span(own)), "rows").wait();
  return all;
}

}  // namespace

WholeRows::WholeRows(const Context& ctx, const Rows& rows)
    : sequences_(rows.sequences), positions_(rows.share ? rows.share->whole : rows.positions) {
  if (!rows.share) return;
  among_ = &ctx.grid.context();
  own_blocks_ = std::ssize(rows.share->numbers);
  blocks_ = gather_parts(*among_, rows.share->numbers);
}

std::int64_t WholeRows::first_row(std::int64_t rank, std::int64_t i) const {
  const std::int64_t sequence = i * sequences_ / own_blocks_;
  return sequence * positions_ + blocks_[rank * own_blocks_ + i] * kContextBlock;
}

template <typename T>
std::vector<T> WholeRows::gather(std::vector<T> own, std::int64_t cols) const {
  const std::int64_t rows = among_ ? own_blocks_ * kContextBlock : sequences_ * positions_;
  AXONN_CHECK(std::ssize(own) == rows * cols, "WholeRows: ", own.size(), " values for ", rows,
              " rows of ", cols);
  if (!among_) return own;
  const std::vector<T> parts = gather_parts(*among_, std::move(own));
  std::vector<T> whole(parts.size());
  auto next = parts.begin();
  for (std::int64_t rank = 0; rank < among_->size(); ++rank)
    for (std::int64_t i = 0; i < own_blocks_; ++i, next += kContextBlock * cols)
      std::copy_n(next, kContextBlock * cols, whole.begin() + first_row(rank, i) * cols);
  return whole;
}

template std::vector<float> WholeRows::gather(std::vector<float>, std::int64_t) const;
template std::vector<std::int32_t> WholeRows::gather(std::vector<std::int32_t>, std::int64_t) const;

std::vector<float> WholeRows::own(const std::vector<float>& whole) const {
  AXONN_CHECK(std::ssize(whole) == sequences_ * positions_, "WholeRows: ", whole.size(),
              " values for ", sequences_, " sequences of ", positions_);
  if (!among_) return whole;
  std::vector<float> part;
  for (std::int64_t i = 0; i < own_blocks_; ++i) {
    const auto begin = whole.begin() + first_row(among_->rank(), i);
    part.insert(part.end(), begin, begin + kContextBlock);
  }
  return part;
}

}  // namespace axonn
