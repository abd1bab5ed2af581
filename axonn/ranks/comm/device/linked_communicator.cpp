// make_linked(): collectives of a library such as NCCL.
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "axonn/compute/tensor/scratch.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/moment.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/device/device_communicator.h"

namespace axonn {

namespace {

using Watchdog = std::shared_ptr<DeviceWatchdog>;

/// The multiprocessors that the collectives of a group have while some are in flight: they run one
/// after another.
class Lent {
 public:
  explicit Lent(Device& device) : device_(device) {}
  void begin(int blocks) {
    if (works_++ == 0) device_.lend(blocks_ = blocks);
  }
  void end() {
    if (--works_ == 0) device_.lend(-blocks_);
  }

 private:
  Device& device_;
  int works_ = 0, blocks_ = 0;
};

/// State of a collective on its group's stream.
class LinkedWork final : public Work::State {
 public:
  using Span = std::optional<std::pair<Moment, Moment>>;

  struct Held {
    std::shared_ptr<const Event> finished;
    std::unique_ptr<Scratch> memory;  // that the collective uses until then
    Span span;
    std::shared_ptr<Lent> lent;  // null when it is given back
  };

  LinkedWork(Watchdog watchdog, Device& device, Held held)
      : watchdog_(std::move(watchdog)), device_(device), held_(std::move(held)) {}
  LinkedWork(const LinkedWork&) = delete;
  LinkedWork& operator=(const LinkedWork&) = delete;
  ~LinkedWork() override { give_back(); }
  void wait() override {
    give_back();
    watchdog_->check();
    device_.compute().wait(*held_.finished);
  }
  bool done() override { return held_.finished->done(); }
  Moment moment() override { return device_.moment(device_.compute()); }
  Span span() override { return held_.span; }

 private:
  void give_back() {
    if (const auto lent = std::exchange(held_.lent, nullptr)) lent->end();
  }

  Watchdog watchdog_;
  Device& device_;
  Held held_;
};

class LinkedCommunicator final : public DeviceCommunicator {
 public:
  LinkedCommunicator(std::string name, std::shared_ptr<Communicator> host, Arena& arena,
                     LinkSetup made_of)
      : DeviceCommunicator(std::move(name), std::move(host), arena.device()),
        made_of_(std::move(made_of)),
        watchdog_(made_of_.watchdog.get()),
        arena_(arena),
        stream_(device().make_stream(StreamPriority::high)) {
    if (made_of_.link) link_ = begun(std::move(made_of_.link));
  }

  ~LinkedCommunicator() override {
    if (!link_) return;
    const auto entry = watchdog_->begin(name(), call_text("ending the group"));
    // This rank is leaving with an error; others may never join the collectives that it started.
    const bool fails = std::uncaught_exceptions() > 0;
    if (fails) watchdog_->end_links();
    try {
      stream_->synchronize();          // finishes its work before the stream is destroyed
    } catch (const std::exception&) {  // the next use of the device reports it
    }
    for (auto* link : {&across_, &inside_, &link_}) {
      if (!fails && *link) watchdog_->remove(link->get());  // else the watchdog aborts it
      link->reset();
    }
  }

  bool on_streams() const override { return true; }

  std::unique_ptr<Communicator> split_off(int color, std::string part_name) override {
    std::unique_ptr<Communicator> part = host().split(color, part_name);
    // A group of one rank needs no link, but the split is collective.
    std::shared_ptr<DeviceLink> link =
        split_link({part->size() > 1 ? color : -1, rank(), policy().gpu_blocks_of(part_name)},
                   concat("split ", part_name));
    return std::make_unique<LinkedCommunicator>(
        std::move(part_name), std::move(part), arena_,
        LinkSetup{std::move(link), made_of_.watchdog, made_of_.host_name});
  }

  void abort(const std::string& reason) noexcept override {
    if (watchdog_)
      watchdog_->abort(reason);
    else
      DeviceCommunicator::abort(reason);
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    Stream& compute = device().compute();
    auto entry = watchdog_->begin(name(), call_text(describe(call)));
    auto memory = std::make_unique<Scratch>(arena_);
    const bool exchanges = call.operation == Operation::all_to_all;
    if (exchanges && call.inp.count > 0 && call.inp.data == call.out.data) {
      void* const copy = memory->take<char>(call.inp.bytes());
      device().copy(copy, call.inp.data, call.inp.bytes());
      call.inp.data = copy;
    }
    std::shared_ptr<const Event> ready = compute.record();
    stream_->wait(*ready);
    const Moment begin = traced() ? device().moment(*stream_) : Moment();
    if (in_two_levels(call))
      enqueue_levels(call, *memory);
    else
      enqueue(*link_, call);
    LinkedWork::Span span;
    if (traced()) span.emplace(begin, device().moment(*stream_));
    std::shared_ptr<const Event> finished = stream_->record();
    // A captured collective does not run yet, and its events must not be queried.
    if (!device().capturing()) entry.on_device(std::move(ready), finished);
    lent_->begin(policy().spares ? policy().gpu_blocks_of(name()) : 0);
    return std::make_shared<LinkedWork>(
        made_of_.watchdog, device(),
        LinkedWork::Held{std::move(finished), std::move(memory), std::move(span), lent_});
  }

  void policy_changed() override {
    DeviceCommunicator::policy_changed();
    if (link_ && !inside_ && policy().method != CollectiveMethod::flat) make_levels();
  }

 private:
  /// Links inside the host and across hosts, if all hosts have as many ranks, one after another.
  void make_levels() {
    const std::string& given = made_of_.host_name;
    auto mine = static_cast<std::int64_t>(hash_text(given.empty() ? host_name() : given));
    std::vector<std::int64_t> all(size());
    host().all_gather(buffer(std::span(all)), buffer(std::span(&mine, 1)), "hosts").wait();
    const Hosts hosts({all.begin(), all.end()});
    ranks_on_host_ = hosts.most_ranks();
    for (int r = 0; r < size(); ++r)
      if (hosts.of(r) != r / ranks_on_host_) return;
    if (hosts.count() == 1 || ranks_on_host_ == 1 || size() % ranks_on_host_ != 0) return;
    shape_ = shape_of(hosts, size());
    const int blocks = policy().gpu_blocks_of(name());
    inside_ = begun(split_link({rank() / ranks_on_host_, rank(), blocks}, "split inside the host"));
    across_ = begun(split_link({rank() % ranks_on_host_, rank(), blocks}, "split across hosts"));
  }

  bool in_two_levels(const Call& call) const {
    if (!inside_) return false;
    const bool suits = call.operation != Operation::all_reduce ||
                       (call.op == ReduceOp::sum && call.out.count % ranks_on_host_ == 0);
    const CollectiveSize size_of{call.operation, static_cast<double>(call.bytes())};
    return suits && policy().choose(size_of, shape_, kNcclRates) == CollectiveMethod::two_level;
  }

  /// With a ranks on each of N hosts, (x, y) for x · y parts of n elements:
  ///
  ///   all_gather      across: (1) -> (N); inside: -> (a, N); transposed: (N, a)
  ///   reduce_scatter  transposed: (a, N); inside: -> (N); across: -> (1)
  ///   all_reduce      inside: a reduce_scatter; across: an all_reduce; inside: an all_gather
  void enqueue_levels(const Call& call, Scratch& memory) {
    const std::int64_t a = ranks_on_host_, hosts = size() / a, n = call.count(size());
    Call step = call;
    const auto run = [&](DeviceLink& on, Operation operation, const Buffer& out,
                         const Buffer& inp) {
      step.operation = operation;
      step.out = out;
      step.inp = inp;
      enqueue(on, step);
    };
    if (call.operation == Operation::all_reduce) {
      const Buffer mine = part(call.out, rank() % a * (n / a), n / a);
      run(*inside_, Operation::reduce_scatter, mine, call.inp);
      run(*across_, Operation::all_reduce, mine, mine);
      return run(*inside_, Operation::all_gather, call.out, mine);
    }
    const std::int64_t bytes = n * bytes_of(call.dtype());
    const Buffer some{memory.take<char>(hosts * bytes), n * hosts, call.dtype()},
        all{memory.take<char>(size() * bytes), n * size(), call.dtype()};
    if (call.operation == Operation::all_gather) {
      run(*across_, Operation::all_gather, some, call.inp);
      run(*inside_, Operation::all_gather, all, some);
      transpose({call.out.data, all.data, a, hosts, bytes});
    } else {
      transpose({all.data, call.inp.data, hosts, a, bytes});
      run(*inside_, Operation::reduce_scatter, some, all);
      run(*across_, Operation::reduce_scatter, call.out, some);
    }
  }

  void transpose(const DeviceLink::Transpose& blocks) {
    const auto lock = watchdog_->hold();
    link_->enqueue(blocks, *stream_);
  }

  /// Enqueues a call on a link; when it returns, later ones follow it on the stream.
  void enqueue(DeviceLink& on, const Call& call) {
    {
      const auto lock = watchdog_->hold();
      on.enqueue(call, *stream_);
    }
    await(on);
  }

  /// The link of a part of the group; null without one. It may not be ready yet.
  std::shared_ptr<DeviceLink> split_link(const DeviceLink::Split& split, const std::string& what) {
    if (!link_) return nullptr;
    const auto entry = watchdog_->begin(name(), call_text(what));
    {
      const auto lock = watchdog_->hold();
      link_->begin_split(split);
    }
    await(*link_);
    return link_->take_split();
  }

  /// Watches a new link and waits until it is ready.
  std::shared_ptr<DeviceLink> begun(std::shared_ptr<DeviceLink> link) {
    const auto entry = watchdog_->begin(name(), call_text("making the group"));
    watchdog_->add(link);
    try {
      await(*link);
    } catch (...) {
      watchdog_->end_links();  // the only way to end a link that was never ready
      throw;
    }
    return link;
  }

  std::string call_text(const std::string& what) {
    return concat(what, " (call ", calls_++, " of group ", name(), ')');
  }

  void await(DeviceLink& link) const {
    const auto ready = [&] {
      const auto lock = watchdog_->hold();
      return link.ready();
    };
    while (!ready()) std::this_thread::yield();  // microseconds, except in a group's first calls
  }

  LinkSetup made_of_;  // without the link
  DeviceWatchdog* watchdog_;
  Arena& arena_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Lent> lent_ = std::make_shared<Lent>(device());
  std::shared_ptr<DeviceLink> link_;
  std::shared_ptr<DeviceLink> inside_, across_;  // null unless the group can work in two levels
  int ranks_on_host_ = 1;
  HostShape shape_;
  std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_linked(Communicator& host, Arena& arena, LinkSetup made_of) {
  auto world =
      std::make_unique<LinkedCommunicator>("world", not_owned(host), arena, std::move(made_of));
  world->set_policy(host.policy());
  return world;
}

}  // namespace axonn
