#include "axonn/network/nn/attention/key_exchange.h"

#include <vector>

#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// Gathers all positions and puts them in order.
class AllKeys final : public KeyExchange {
 public:
  AllKeys(const Context& ctx, std::int64_t sequences, const View& slots)
      : ctx_(ctx), group_(ctx.grid.context()), sequences_(sequences), slots_(slots) {}

  Tensor fetch(const Tensor& mine) override {
    Tensor stacked = ctx_.empty(mine.rows() * group_.size(), mine.cols(), mine.dtype(), mine.use());
    Work work = group_.all_gather(buffer_of(stacked.raw_view()), buffer_of(mine.view()),
                                  ctx_.scheduling().scope.label);
    work.keep(mine.owner());
    stacked.set_pending(std::move(work));
    return stacked;
  }

  Tensor keys(const Tensor&, const Tensor& fetched) override { return reordered(fetched, false); }

  Sum begin_sum(Tensor d_keys) override {
    const Tensor stacked = reordered(d_keys, true);
    d_keys = {};
    Tensor mine = ctx_.empty(stacked.rows() / group_.size(), stacked.cols(), stacked.dtype());
    Work work = group_.reduce_scatter(buffer_of(mine.raw_view()), buffer_of(stacked.view()),
                                      ctx_.scheduling().scope.label);
    work.keep(stacked.owner());
    mine.set_pending(std::move(work));
    return {.received = mine, .own = {}};
  }

  Tensor finish_sum(const Sum& sum) override { return sum.received; }

 private:
  Tensor reordered(const Tensor& inp, bool inverse) const {
    Tensor out = ctx_.like(inp);
    ctx_.backend.run(ops::OrderBlocks{.out = out.view(),
                                      .inp = inp.view(),
                                      .slots = slots_,
                                      .sequences = sequences_,
                                      .ways = group_.size(),
                                      .inverse = inverse});
    return out;
  }

  const Context& ctx_;
  Communicator& group_;
  std::int64_t sequences_;
  View slots_;
};

/// Gets the last rows of the rank before this one. Of each sequence the first rank's halo is zero.
class NeighbourKeys final : public KeyExchange {
 public:
  NeighbourKeys(const Context& ctx, const SequenceShare& share, std::int64_t sequences)
      : ctx_(ctx),
        group_(ctx.grid.context()),
        halo_(share.halo),
        own_(share.keys - share.halo),
        sequences_(sequences) {}

  Tensor fetch(const Tensor& mine) override {
    return pass_on(mine, own_, own_ - halo_, group_.rank() + 1, group_.rank() - 1);
  }

  Tensor keys(const Tensor& mine, const Tensor& fetched) override {
    finish_sends();
    Tensor out = ctx_.empty(sequences_ * (halo_ + own_), mine.cols(), mine.dtype(), mine.use());
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const View to = out.view().row_range(s * (halo_ + own_), halo_ + own_);
      copy(to.row_range(0, halo_), fetched.view().row_range(s * halo_, halo_));
      copy(to.row_range(halo_, own_), mine.view().row_range(s * own_, own_));
    }
    return out;
  }

  Sum begin_sum(Tensor d_keys) override {
    Tensor received = pass_on(d_keys, halo_ + own_, 0, group_.rank() - 1, group_.rank() + 1);
    return {.received = std::move(received), .own = std::move(d_keys)};
  }

  Tensor finish_sum(const Sum& sum) override {
    finish_sends();
    Tensor out = ctx_.empty(sequences_ * own_, sum.own.cols(), sum.own.dtype());
    for (std::int64_t s = 0; s < sequences_; ++s) {
      const View to = out.view().row_range(s * own_, own_);
      copy(to, sum.own.view().row_range(s * (halo_ + own_) + halo_, own_));
      const View last = to.row_range(own_ - halo_, halo_);
      ctx_.backend.run(ops::Add{last, last, sum.received.view().row_range(s * halo_, halo_)});
    }
    return out;
  }

 private:
  /// Starts to send halo_ rows, from row `first` of each run of `length`, to one rank and to
  /// receive as many of another: (B·halo, C). Zeros if there is no such rank.
  Tensor pass_on(const Tensor& rows, std::int64_t length, std::int64_t first, int to, int from) {
    const auto label = ctx_.scheduling().scope.label;
    const auto exists = [&](int rank) { return rank >= 0 && rank < group_.size(); };
    const std::int64_t count = sequences_ * halo_;
    if (exists(to)) {
      const Tensor part = ctx_.empty(count, rows.cols(), rows.dtype(), rows.use());
      for (std::int64_t s = 0; s < sequences_; ++s)
        copy(part.view().row_range(s * halo_, halo_),
             rows.view().row_range(s * length + first, halo_));
      Work& sent = sends_.emplace_back(group_.send(buffer_of(part.view()), to, label));
      sent.keep(part.owner());
    }
    if (!exists(from)) return ctx_.zeros(count, rows.cols(), rows.dtype(), rows.use());
    Tensor received = ctx_.empty(count, rows.cols(), rows.dtype(), rows.use());
    received.set_pending(group_.recv(buffer_of(received.raw_view()), from, label));
    return received;
  }

  void finish_sends() {
    for (Work& sent : sends_) sent.wait();
    sends_.clear();
  }

  void copy(const View& to, const View& from) const { ctx_.backend.run(ops::Cast{to, from}); }

  const Context& ctx_;
  Communicator& group_;
  std::int64_t halo_, own_, sequences_;
  std::vector<Work> sends_;
};

}  // namespace

std::unique_ptr<KeyExchange> make_key_exchange(const Context& ctx, const SequenceShare& share,
                                               std::int64_t sequences, const View& slots) {
  if (share.has_halo()) return std::make_unique<NeighbourKeys>(ctx, share, sequences);
  return std::make_unique<AllKeys>(ctx, sequences, slots);
}

}  // namespace axonn
