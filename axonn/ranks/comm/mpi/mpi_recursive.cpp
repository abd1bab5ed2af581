// Collectives of about log2(size) rounds, for small data: sums that double or halve along the tree
// of sums, a gather whose blocks double, and a broadcast along a tree.
#include <array>
#include <bit>
#include <deque>

#include "axonn/ranks/comm/mpi/mpi_algorithms.h"
#include "axonn/ranks/comm/reduce.h"

namespace axonn {

namespace {

constexpr int kExchangePhase = 0, kPassPhase = 1;

/// all_reduce and reduce_scatter: at each branch of the tree of sums that it belongs to, every rank
/// has the sum of its own side and gets that of the other side, from a rank in the same place
/// there. The left side may have more ranks than the right one; then its first ranks pass the right
/// one's sum on, to twice as many others in each round.
///
/// Every rank sends its whole buffer in each round, also for a reduce_scatter, which takes this way
/// only if the number of ranks is no power of two.
class Doubling final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    collect({0, size()});
    // The sends of one tag between two ranks are in order: they meet at one branch, and one may
    // pass a sum on to the other at one more.
    for (Level& level : levels_) {
      level.block = context_.staging.take(2 * bytes_of_sum());
      level.theirs = sum_in(level.block.get(), level.left ? level.right_ranks : level.split);
      recv(level.receives, level.theirs, level.from, level.passed ? kPassPhase : kExchangePhase);
    }
    if (!levels_.empty()) send_own(levels_.front(), {call_.inp.data, call_.inp.count, dtype()});
  }

  bool step() override {
    // A sum is passed on as soon as it arrives, also before this rank's own side is complete.
    for (Level& level : levels_)
      if (!level.has_come && level.receives.advance(context_)) {
        level.has_come = true;
        for (const int to : level.pass_to)
          send(sends_, level.theirs, to, kPassPhase, Transfer::send_confirmed);
      }
    for (; at_ + 1 < levels_.size() && levels_[at_].has_come; ++at_) {
      Level &level = levels_[at_], &above = levels_[at_ + 1];
      const Buffer sum = sum_in(above.block.get() + bytes_of_sum(), 2);
      reduce_branch(sum.data, sides(level), sum.count, dtype(), call_.op);
      send_own(above, sum);
    }
    const bool complete = at_ + 1 == levels_.size() && levels_[at_].has_come;
    if (!sends_.advance(context_) || !complete) return false;
    finish();
    return true;
  }

  int awaits() const override {
    for (const Level& level : levels_)
      if (const int awaited = level.receives.awaited(); awaited >= 0) return awaited;
    return sends_.awaited();
  }

 private:
  struct Level {
    int first = 0, split = 1, right_ranks = 1;  // the branch and the ranks of its two sides
    bool left = true;                           // whether this rank is on the left side
    int from = 0;                               // the rank that sends the other side's sum,
    bool passed = false;                        // whether it is on this rank's side, too
    int to = -1;                                // the rank that gets this side's sum; -1: none
    std::vector<int> pass_to;                   // those that get the other side's sum
    StagingPool::Block block;                   // the other side's sum, then this side's
    Buffer own, theirs;
    Messages receives;
    bool has_come = false;
  };

  DType dtype() const { return call_.dtype(); }
  std::int64_t bytes_of_sum() const { return call_.inp.count * bytes_of(sum_type(dtype())); }
  /// A side's sum is wider than a value unless it is one.
  Buffer sum_in(char* data, int ranks) const {
    return {data, call_.inp.count, ranks == 1 ? dtype() : sum_type(dtype())};
  }

  /// Adds the branches that this rank belongs to, the smallest first.
  void collect(const Branch& branch) {
    if (branch.ranks == 1) return;
    Level level;
    level.first = branch.first;
    level.split = sum_split(branch.ranks);
    level.right_ranks = branch.ranks - level.split;
    const int right = branch.first + level.split, in_branch = rank() - branch.first;
    level.left = in_branch < level.split;
    if (level.left) {
      collect({branch.first, level.split});
      // Ranks of the left side in rows as long as the right side: row 0 exchanges with it, and row
      // m passes its sum on to rows m + 1, m + 2, m + 4, ... as far as these are above 2 m.
      const int row = in_branch / level.right_ranks, column = in_branch % level.right_ranks;
      const auto top = static_cast<int>(std::bit_floor(static_cast<unsigned>(row)));
      level.passed = row > 0;
      level.from =
          level.passed ? branch.first + (row - top) * level.right_ranks + column : right + column;
      if (!level.passed) level.to = right + column;
      for (int more = row == 0 ? 1 : 2 * top;
           (row + more) * level.right_ranks + column < level.split; more *= 2)
        level.pass_to.push_back(branch.first + (row + more) * level.right_ranks + column);
    } else {
      collect({right, level.right_ranks});
      level.from = level.to = rank() - level.split;
    }
    levels_.push_back(std::move(level));
  }

  void send_own(Level& level, const Buffer& own) {
    level.own = own;
    ++context_.rounds;
    if (level.to >= 0) send(sends_, own, level.to, kExchangePhase);
  }

  std::vector<Summand> sides(const Level& level) const {
    const auto side = [](const Buffer& sum, int first, int ranks) {
      return Summand{sum.data, {first, ranks}, ranks > 1};
    };
    const Buffer &left = level.left ? level.own : level.theirs,
                 &right = level.left ? level.theirs : level.own;
    return {side(left, level.first, level.split),
            side(right, level.first + level.split, level.right_ranks)};
  }

  void finish() {
    const Level& root = levels_.back();
    std::vector<Summand> whole = sides(root);
    if (call_.operation == Operation::reduce_scatter)
      for (Summand& side : whole) {
        const DType type = side.summed ? sum_type(dtype()) : dtype();
        side.data = static_cast<const char*>(side.data) + rank() * call_.out.count * bytes_of(type);
      }
    reduce({&call_.out.data, 1}, whole, call_.out.count, dtype(), call_.op);
  }

  std::vector<Level> levels_;  // from this rank's smallest branch to the whole tree
  std::size_t at_ = 0;         // the level whose own side is complete
  Messages sends_;
};

/// reduce_scatter on 2^k ranks. In round i, ranks that differ in bit i have the sums of their 2^i
/// neighbours for the parts whose numbers are theirs in the bits below i. Of these each keeps the
/// parts that have its own bit i, and sends the others.
class Halving final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    for (int part_of = 0; part_of < size(); ++part_of)
      sums_.push_back(part(call_.inp, part_of * call_.out.count, call_.out.count));
    next_round();
  }

  bool step() override {
    while (distance_ < size() && messages_.advance(context_)) {
      add();
      distance_ *= 2;
      messages_ = {};
      if (distance_ < size()) next_round();
    }
    if (!sends_.advance(context_) || distance_ < size()) return false;
    copy(call_.out, {result_.get(), call_.out.count, call_.out.dtype});
    return true;
  }

  int awaits() const override {
    const int awaited = messages_.awaited();
    return awaited >= 0 ? awaited : sends_.awaited();
  }

 private:
  bool upper() const { return (rank() & distance_) != 0; }

  void next_round() {
    std::vector<Buffer> others;
    kept_.clear();
    for (std::size_t i = 0; i < sums_.size(); ++i)
      ((i % 2 == 1) == upper() ? kept_ : others).push_back(sums_[i]);
    theirs_ = room(kept_.size(), sums_.front().dtype);
    ++context_.rounds;
    recv(messages_, theirs_, rank() ^ distance_, 0);
    send(sends_, others, rank() ^ distance_, 0);
  }

  /// sums_ = kept_ + theirs_
  void add() {
    const bool last = 2 * distance_ == size(), summed = distance_ > 1;
    const int mine = rank() & ~(distance_ - 1), other = mine ^ distance_;
    sums_ = room(kept_.size(), sum_type(call_.dtype()));
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      std::array<Summand, 2> sides = {Summand{kept_[i].data, {mine, distance_}, summed},
                                      Summand{theirs_[i].data, {other, distance_}, summed}};
      if (upper()) std::swap(sides[0], sides[1]);
      if (!last)
        reduce_branch(sums_[i].data, sides, sums_[i].count, call_.dtype(), call_.op);
      else
        reduce({&sums_[i].data, 1}, sides, sums_[i].count, call_.dtype(), call_.op);
    }
    if (last) result_ = std::move(blocks_.back());
  }

  std::vector<Buffer> room(std::size_t parts, DType dtype) {
    const std::int64_t n = call_.out.count, all = static_cast<std::int64_t>(parts) * n;
    blocks_.push_back(context_.staging.take(all * bytes_of(dtype)));
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < parts; ++i)
      buffers.push_back(
          part({blocks_.back().get(), all, dtype}, static_cast<std::int64_t>(i) * n, n));
    return buffers;
  }

  int distance_ = 1;
  std::vector<Buffer> sums_, kept_, theirs_;  // by part, ascending
  std::vector<StagingPool::Block> blocks_;    // sends use those of earlier rounds
  StagingPool::Block result_;                 // out may be part of inp, which is being sent
  Messages sends_;
};

/// all_gather: in each round a rank sends the parts that it has to the rank `distance_` before it,
/// and gets as many from the rank that is as far after it (Bruck et al., 1997).
class DoublingGather final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    copy(parts(0, 1).front(), call_.inp);
    next_round();
  }

  bool step() override {
    while (distance_ < size() && messages_.advance(context_)) {
      distance_ *= 2;
      messages_ = {};
      if (distance_ < size()) next_round();
    }
    return sends_.advance(context_) && distance_ >= size();
  }

  int awaits() const override {
    const int awaited = messages_.awaited();
    return awaited >= 0 ? awaited : sends_.awaited();
  }

 private:
  void next_round() {
    const int count = std::min(distance_, size() - distance_);
    ++context_.rounds;
    recv(messages_, parts(distance_, count), after(distance_), 0);
    send(sends_, parts(0, count), before(distance_), 0, Transfer::send_confirmed);
  }

  /// The parts of `count` ranks, from the rank that is `begin` after this one on.
  std::vector<Buffer> parts(int begin, int count) const {
    const std::int64_t n = call_.inp.count;
    const int first = after(begin), until_end = std::min(count, size() - first);
    std::vector<Buffer> runs = {part(call_.out, first * n, until_end * n)};
    if (count > until_end) runs.push_back(part(call_.out, 0, (count - until_end) * n));
    return runs;
  }

  int distance_ = 1;
  Messages sends_;  // the next round need not wait for them
};

/// broadcast: the ranks that have the data double in each round.
class TreeBroadcast final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    const int relative = (rank() - call_.peer + size()) % size();
    top_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(relative)));
    if (relative > 0) recv(messages_, call_.out, before(top_), 0);
    while (relative + next_ < size()) next_ *= 2;  // the rank with the most ranks below it first
    relative_ = relative;
  }

  bool step() override {
    if (!messages_.advance(context_)) return false;
    for (; next_ > top_; next_ /= 2)
      if (relative_ + next_ < size())
        send(sends_, call_.out, after(next_), 0, Transfer::send_confirmed);
    return sends_.advance(context_);
  }

  int awaits() const override {
    const int awaited = messages_.awaited();
    return awaited >= 0 ? awaited : sends_.awaited();
  }

 private:
  int relative_ = 0, top_ = 0, next_ = 1;
  Messages sends_;
};

}  // namespace

std::unique_ptr<MpiAlgorithm> make_recursive(MpiContext& context, const MpiGroup& group,
                                             const Call& call, std::int64_t sequence) {
  if (call.operation == Operation::all_gather)
    return std::make_unique<DoublingGather>(context, group, call, sequence);
  if (call.operation == Operation::broadcast)
    return std::make_unique<TreeBroadcast>(context, group, call, sequence);
  if (call.operation == Operation::reduce_scatter &&
      std::has_single_bit(static_cast<unsigned>(group.size())))
    return std::make_unique<Halving>(context, group, call, sequence);
  return std::make_unique<Doubling>(context, group, call, sequence);
}

}  // namespace axonn
