// Collectives in two levels. Rank r of a host exchanges data with the ranks of the same index on
// the other hosts (Hosts). n: bytes of a rank's part; a ranks on each of N hosts.
//
//   gather    across the hosts   r's part to its helper on each other host     a (N - 1) n leave
//             inside the host    r's part and those of its clients to all        a host
//   scatter   inside the host    values of q's and of its clients' parts to q
//             across the hosts   the host's sums of r's clients' parts to these  a (N - 1) n leave,
//                                                                              for each branch
//
// An all_reduce is a scatter, then a gather. A flat exchange sends a times as many bytes out of a
// host. The owner of a part adds its own host's values and the other hosts' sums of branches
// (reduce.h), which are not rounded, so the bits are those of a flat exchange.
#include <algorithm>
#include <deque>
#include <map>

#include "axonn/ranks/comm/mpi/mpi_algorithms.h"
#include "axonn/ranks/comm/reduce.h"

namespace axonn {

namespace {

/// Largest slices of several parts that travel in one message.
constexpr std::int64_t kLargestTogether = 8 << 10;

class TwoLevel final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    home_ = hosts().of(rank());
    for (const int other : hosts().ranks_on(home_)) {
      if (other != rank()) peers_.push_back(other);
      // The parts that a rank of this host has to send to the others, or sums for other hosts.
      auto& parts = parts_at_[other];
      parts.push_back(other);
      for (const int client : hosts().clients(other)) parts.push_back(client);
    }
    for (const Branch& branch : hosts().branches())
      if (hosts().of(branch.first) == home_) own_branches_.push_back(branch);
    for (int host = 0; host < hosts().count(); ++host)
      if (host != home_) helpers_.push_back(hosts().helper(rank(), host));
    if (gathers_only()) {
      part_ = call_.inp.count;
      copy(part(call_.out, rank() * part_, part_), call_.inp);
    } else {
      part_ = (call_.inp.count + size() - 1) / size();
    }
    step_ = segment_elements(size(), call_.dtype());
    segments_ = (part_ + step_ - 1) / step_;
    // Messages of two segments with the same tag may be in flight only if all are sent at once.
    const auto most = static_cast<std::int64_t>(
        std::max(1 + (size() - 1) / least_ranks(), 2 * hosts().most_branches()));
    overlap_ = most * step_ * bytes_of(call_.dtype()) <= ahead();
  }

  bool step() override {
    // Each segment enters its stages after the one before it, so messages with the same tag match.
    Stage before = Stage::done;
    for (Segment& segment : in_flight_) {
      while (segment.messages.advance(context_) && may_enter(next(segment.stage), before))
        enter(segment, next(segment.stage));
      before = segment.stage;
      if (before != Stage::done && !segment.messages.advance(context_) && !overlap_)
        before = static_cast<Stage>(static_cast<int>(before) - 1);
    }
    std::erase_if(in_flight_, [](const Segment& s) { return s.stage == Stage::done; });
    while (begun_ < segments_ && in_flight_.size() < kSegmentsInFlight &&
           (in_flight_.empty() || may_enter(first_stage(), entered(in_flight_.back())))) {
      Segment& segment = in_flight_.emplace_back();
      segment.index = begun_++;
      enter(segment, first_stage());
    }
    return in_flight_.empty() && begun_ == segments_;
  }

  int awaits() const override {
    for (const Segment& segment : in_flight_)
      if (const int awaited = segment.messages.awaited(); awaited >= 0) return awaited;
    return -1;
  }

  std::int64_t ahead() const override { return ahead_of(hosts().count() + hosts().most_ranks()); }

 private:
  enum class Stage { begin, scatter_inside, scatter_across, gather_across, gather_inside, done };
  static constexpr int kScatter = 0,
                       kGather = 1;  // phases: one for both levels, whose ranks differ

  struct Segment {
    std::int64_t index = 0;
    Stage stage = Stage::begin;
    Messages messages;
    StagingPool::Block values;       // of peers: their parts_at_[rank()], one rank after another
    StagingPool::Block for_clients;  // sums of this host's branches, one client after another
    StagingPool::Block for_this;     // sums of other hosts' branches, one host after another
  };

  const Hosts& hosts() const { return group_.hosts; }
  bool gathers_only() const { return call_.operation == Operation::all_gather; }
  Stage first_stage() const {
    return gathers_only() ? Stage::gather_across : Stage::scatter_inside;
  }
  Stage next(Stage stage) const {
    if (stage == Stage::scatter_across && call_.operation == Operation::reduce_scatter)
      return Stage::done;
    return static_cast<Stage>(static_cast<int>(stage) + 1);
  }
  /// The last stage that a segment has entered, or, if they may not overlap, completed.
  Stage entered(Segment& segment) {
    const bool counts = overlap_ || segment.messages.advance(context_);
    return counts ? segment.stage : static_cast<Stage>(static_cast<int>(segment.stage) - 1);
  }
  static bool may_enter(Stage stage, Stage before) { return stage <= before; }

  int least_ranks() const {
    int least = size();
    for (int host = 0; host < hosts().count(); ++host)
      least = std::min(least, static_cast<int>(hosts().ranks_on(host).size()));
    return least;
  }

  /// Sends or receives slices of several parts. Large ones are messages of their own, because MPI
  /// copies a message of several blocks piece by piece, a few in each poll.
  void post(Segment& segment, Transfer transfer, const std::vector<Buffer>& slices, int peer,
            int phase) {
    const bool large = std::min(part_, step_) * bytes_of(call_.dtype()) > kLargestTogether;
    for (std::size_t i = 0; large && i < slices.size(); ++i)
      send(segment.messages, slices[i], peer, phase, transfer);
    if (!large) send(segment.messages, slices, peer, phase, transfer);
  }

  /// Segment `segment` of the part of rank `part_of` in the large buffer. The last parts of an
  /// all_reduce may be shorter.
  Buffer slice(int part_of, std::int64_t segment) const {
    const Buffer& whole = gathers_only() ? call_.out : call_.inp;
    const std::int64_t first = part_of * part_,
                       begin = std::min(whole.count, first + segment * step_),
                       end = std::min({whole.count, first + part_, first + (segment + 1) * step_});
    return part(whole, begin, std::max<std::int64_t>(0, end - begin));
  }
  std::vector<Buffer> slices(const std::vector<int>& parts_of, std::int64_t segment) const {
    std::vector<Buffer> all;
    for (const int part_of : parts_of) all.push_back(slice(part_of, segment));
    return all;
  }

  std::size_t branches_on_host_of(int rank) const {
    return static_cast<std::size_t>(hosts().branches_on(hosts().of(rank)));
  }

  void enter(Segment& segment, Stage stage) {
    if (segment.stage == Stage::scatter_inside) sum_for_clients(segment);
    if (segment.stage == Stage::scatter_across) sum_own(segment);
    segment.stage = stage;
    segment.messages = {};
    ++context_.rounds;
    switch (stage) {
      case Stage::scatter_inside:
        return scatter_inside(segment);
      case Stage::scatter_across:
        return scatter_across(segment);
      case Stage::gather_across:
        return gather_across(segment);
      case Stage::gather_inside:
        return gather_inside(segment);
      case Stage::begin:
      case Stage::done:
        return;
    }
  }

  /// The value of slice number `which` of parts_at_[rank()], as received from a peer.
  Buffer staged(const Segment& segment, std::size_t peer, std::size_t which) const {
    const auto& parts = parts_at_.at(rank());
    const Buffer like = slice(parts[which], segment.index);
    const auto place = static_cast<std::int64_t>(peer * parts.size() + which) * step_;
    return {segment.values.get() + place * bytes_of(like.dtype), like.count, like.dtype};
  }

  void scatter_inside(Segment& segment) {
    const std::size_t parts = parts_at_.at(rank()).size();
    segment.values = context_.staging.take(static_cast<std::int64_t>(peers_.size() * parts) *
                                           step_ * bytes_of(call_.dtype()));
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      std::vector<Buffer> values;
      for (std::size_t which = 0; which < parts; ++which)
        values.push_back(staged(segment, peer, which));
      post(segment, Transfer::receive, values, peers_[peer], kScatter);
    }
    for (const int peer : peers_)
      post(segment, Transfer::send, slices(parts_at_.at(peer), segment.index), peer, kScatter);
  }

  /// This host's values of slice number `which` of parts_at_[rank()], of a branch's ranks.
  std::vector<Summand> values_of(const Segment& segment, std::size_t which,
                                 const Branch& branch) const {
    std::vector<Summand> values;
    for (int r = branch.first; r < branch.first + branch.ranks; ++r) {
      const auto peer = static_cast<std::size_t>(std::ranges::find(peers_, r) - peers_.begin());
      const Buffer value =
          r == rank() ? slice(parts_at_.at(r)[which], segment.index) : staged(segment, peer, which);
      values.push_back({value.data, {r, 1}});
    }
    return values;
  }

  void sum_for_clients(Segment& segment) const {
    const std::vector<Branch> branches = own_branches_;
    const auto& parts = parts_at_.at(rank());
    const std::int64_t each = step_ * bytes_of(sum_type(call_.dtype()));
    segment.for_clients = context_.staging.take(
        static_cast<std::int64_t>((parts.size() - 1) * branches.size()) * each);
    for (std::size_t which = 1; which < parts.size(); ++which) {
      const std::vector<Buffer> sums = sums_for(segment, which);
      for (std::size_t b = 0; b < branches.size(); ++b)
        reduce_branch(sums[b].data, values_of(segment, which, branches[b]), sums[b].count,
                      call_.dtype(), call_.op);
    }
  }

  /// The positions of `count` sums of a slice of `elements`, from sum number `first` on.
  std::vector<Buffer> sums_in(const StagingPool::Block& block, std::size_t first, std::size_t count,
                              std::int64_t elements) const {
    const DType type = sum_type(call_.dtype());
    std::vector<Buffer> sums;
    for (std::size_t i = first; i < first + count; ++i)
      sums.push_back(
          {block.get() + static_cast<std::int64_t>(i) * step_ * bytes_of(type), elements, type});
    return sums;
  }
  std::vector<Buffer> sums_for(const Segment& segment, std::size_t which) const {
    const std::size_t branches = own_branches_.size();
    return sums_in(segment.for_clients, (which - 1) * branches, branches,
                   slice(parts_at_.at(rank())[which], segment.index).count);
  }

  void scatter_across(Segment& segment) {
    const std::size_t elsewhere = hosts().branches().size() - own_branches_.size();
    segment.for_this = context_.staging.take(static_cast<std::int64_t>(elsewhere) * step_ *
                                             bytes_of(sum_type(call_.dtype())));
    std::size_t first = 0;
    for (const int helper : helpers_) {
      const std::size_t branches = branches_on_host_of(helper);
      post(segment, Transfer::receive,
           sums_in(segment.for_this, first, branches, slice(rank(), segment.index).count), helper,
           kScatter);
      first += branches;
    }
    const auto& parts = parts_at_.at(rank());
    for (std::size_t which = 1; which < parts.size(); ++which)
      post(segment, answered(parts[which], helpers_), sums_for(segment, which), parts[which],
           kScatter);
  }

  /// Adds this host's values and the other hosts' sums.
  void sum_own(Segment& segment) {
    const Buffer mine = slice(rank(), segment.index);
    std::map<int, std::size_t> next_of;  // by host: its next branch in for_this
    std::size_t first = 0;
    for (const int helper : helpers_) {
      next_of[hosts().of(helper)] = first;
      first += branches_on_host_of(helper);
    }
    std::vector<Summand> all;
    for (const Branch& branch : hosts().branches()) {
      if (const int host = hosts().of(branch.first); host != home_) {
        const Buffer sum = sums_in(segment.for_this, next_of[host]++, 1, mine.count).front();
        all.push_back({sum.data, branch, true});
      } else {
        for (const Summand& value : values_of(segment, 0, branch)) all.push_back(value);
      }
    }
    const bool gathers = call_.operation == Operation::all_reduce;
    void* const out = gathers ? mine.data : part(call_.out, segment.index * step_, mine.count).data;
    reduce({&out, 1}, all, mine.count, call_.dtype(), call_.op);
    segment.values.reset();
    segment.for_clients.reset();
    segment.for_this.reset();
  }

  void gather_across(Segment& segment) {
    const auto& parts = parts_at_.at(rank());
    const std::vector<int> clients(parts.begin() + 1, parts.end());
    for (const int client : clients)
      recv(segment.messages, slice(client, segment.index), client, kGather);
    for (const int helper : helpers_)
      send(segment.messages, slice(rank(), segment.index), helper, kGather,
           answered(helper, clients));
  }

  void gather_inside(Segment& segment) {
    for (const int peer : peers_)
      post(segment, Transfer::receive, slices(parts_at_.at(peer), segment.index), peer, kGather);
    for (const int peer : peers_)
      post(segment, Transfer::send, slices(parts_at_.at(rank()), segment.index), peer, kGather);
  }

  /// How to send to a rank, given those of which this rank awaits a message.
  static Transfer answered(int to, const std::vector<int>& awaited) {
    return std::ranges::count(awaited, to) > 0 ? Transfer::send : Transfer::send_confirmed;
  }

  int home_ = 0;
  std::vector<int> peers_;                    // the other ranks of this host
  std::vector<int> helpers_;                  // of this rank, one on each other host
  std::map<int, std::vector<int>> parts_at_;  // by rank of this host: itself, then its clients
  std::vector<Branch> own_branches_;          // those of this host
  std::int64_t part_ = 0;                     // elements of a rank's part
  std::int64_t step_ = 0;                     // elements of a segment of a part
  std::int64_t segments_ = 0;                 // segments of a part
  std::int64_t begun_ = 0;
  bool overlap_ = true;
  std::deque<Segment> in_flight_;
};

}  // namespace

std::unique_ptr<MpiAlgorithm> make_two_level(MpiContext& context, const MpiGroup& group,
                                             const Call& call, std::int64_t sequence) {
  return std::make_unique<TwoLevel>(context, group, call, sequence);
}

}  // namespace axonn
