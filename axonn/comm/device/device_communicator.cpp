#include "axonn/comm/device/device_communicator.h"

#include <cstddef>
#include <exception>
#include <set>
#include <thread>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/host.h"
#include "axonn/base/random.h"
#include "axonn/comm/collective_cost.h"

namespace axonn {

std::shared_ptr<Work::State> DeviceCommunicator::start(Call call) {
  const Buffer& one = call.out.count > 0 ? call.out : call.inp;
  const auto on_host = [&](const Buffer& of) { return of.data && !device_.holds(of.data); };
  // With counts, a rank without elements joins the others, whose elements may be on the device.
  const bool empty = one.count == 0,
             joins = empty && call.counted() && !on_host(call.out) && !on_host(call.inp);
  if (empty ? !joins : on_host(one)) return start_on(*host_, std::move(call));
  AXONN_CHECK(call.inp.count == 0 || device_.holds(call.inp.data), about(call),
              ": one buffer is in device memory and the other in host memory");
  if (size() > 1) return start_on_device(std::move(call));
  if (call.out.data != call.inp.data && call.out.count > 0)
    device_.copy(call.out.data, call.inp.data, call.out.bytes());
  return nullptr;
}

bool have_own_gpus(Communicator& host, const Device& device) {
  const std::string uuid = device.uuid();  // as long on every rank
  const std::int64_t length = std::ssize(uuid);
  std::string all(length * host.size(), '\0');
  const auto bytes = [](const std::string& text) {
    return buffer(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  };
  host.all_gather(bytes(all), bytes(uuid), "GPU UUIDs").wait();
  std::set<std::string> different;
  for (int rank = 0; rank < host.size(); ++rank)
    different.insert(all.substr(rank * length, length));
  return length > 0 && std::ssize(different) == host.size();
}

namespace {

class StagedCommunicator final : public DeviceCommunicator {
 public:
  using DeviceCommunicator::DeviceCommunicator;

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    return std::make_unique<StagedCommunicator>(name, host().split(color, name), device());
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    return std::make_shared<Staged>(host(), device(), call);
  }

 private:
  /// State of a collective on host copies of its buffers.
  class Staged final : public Work::State {
   public:
    Staged(Communicator& host, Device& device, const Call& call)
        : device_(device), result_(call.out) {
      Call staged = call;
      const bool same = call.inp.data == call.out.data;  // in place; one may be part of the other
      staged.inp.data = room(inp_, same ? call.bytes() : call.inp.bytes());
      staged.out.data = same ? staged.inp.data : room(out_, call.out.bytes());
      if (call.inp.count > 0)
        device_.copy_to_host(staged.inp.data, call.inp.data, call.inp.bytes());
      from_ = staged.out.data;
      work_ = Work(start_on(host, std::move(staged)));
    }

    void wait() override {
      work_.wait();
      if (result_.count > 0) device_.copy_from_host(result_.data, from_, result_.bytes());
    }
    bool done() override { return work_.done(); }

   private:
    static void* room(std::vector<std::byte>& memory, std::int64_t bytes) {
      memory.resize(static_cast<std::size_t>(bytes));
      return memory.data();
    }

    Device& device_;
    Buffer result_;
    std::vector<std::byte> inp_, out_;
    const void* from_ = nullptr;
    Work work_;  // last, so that it is destroyed before the memory that it uses
  };
};

using Watchdog = std::shared_ptr<DeviceWatchdog>;

/// State of a collective on its group's stream.
class LinkedWork final : public Work::State {
 public:
  LinkedWork(Watchdog watchdog, Stream& compute, std::shared_ptr<const Event> finished)
      : watchdog_(std::move(watchdog)), compute_(compute), finished_(std::move(finished)) {}
  void wait() override {
    watchdog_->check();
    compute_.wait(*finished_);
  }
  bool done() override { return finished_->done(); }

 private:
  Watchdog watchdog_;
  Stream& compute_;
  std::shared_ptr<const Event> finished_;
};

class LinkedCommunicator final : public DeviceCommunicator {
 public:
  LinkedCommunicator(std::string name, std::shared_ptr<Communicator> host, Device& device,
                     LinkSetup made_of)
      : DeviceCommunicator(std::move(name), std::move(host), device),
        made_of_(std::move(made_of)),
        watchdog_(made_of_.watchdog.get()),
        stream_(device.make_stream()) {
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
        split_link(part->size() > 1 ? color : -1, rank(), concat("split ", part_name));
    return std::make_unique<LinkedCommunicator>(
        std::move(part_name), std::move(part), device(),
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
    std::shared_ptr<const Event> ready = compute.record();
    stream_->wait(*ready);
    if (in_two_levels(call))
      enqueue_levels(call);
    else
      enqueue(*link_, call);
    std::shared_ptr<const Event> finished = stream_->record();
    // A captured collective does not run yet, and its events must not be queried.
    if (!device().capturing()) entry.on_device(std::move(ready), finished);
    return std::make_shared<LinkedWork>(made_of_.watchdog, compute, std::move(finished));
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
    inside_ = begun(split_link(rank() / ranks_on_host_, rank(), "split inside the host"));
    across_ = begun(split_link(rank() % ranks_on_host_, rank(), "split across hosts"));
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
  void enqueue_levels(const Call& call) {
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
    const Scratch some(*this, n * hosts, call.dtype()), all(*this, n * size(), call.dtype());
    const std::int64_t bytes = n * bytes_of(call.dtype());
    if (call.operation == Operation::all_gather) {
      run(*across_, Operation::all_gather, some.buffer, call.inp);
      run(*inside_, Operation::all_gather, all.buffer, some.buffer);
      transpose({call.out.data, all.buffer.data, a, hosts, bytes});
    } else {
      transpose({all.buffer.data, call.inp.data, hosts, a, bytes});
      run(*inside_, Operation::reduce_scatter, some.buffer, all.buffer);
      run(*across_, Operation::reduce_scatter, call.out, some.buffer);
    }
  }

  /// Memory of the device for one call.
  struct Scratch {
    Scratch(LinkedCommunicator& group, std::int64_t count, DType dtype)
        : of(group), buffer{nullptr, count, dtype} {
      const auto lock = of.watchdog_->hold();
      buffer.data = of.link_->take(buffer.bytes(), *of.stream_);
    }
    ~Scratch() { of.link_->give_back(buffer.data, *of.stream_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    LinkedCommunicator& of;
    Buffer buffer;
  };

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
  std::shared_ptr<DeviceLink> split_link(int color, int key, const std::string& what) {
    if (!link_) return nullptr;
    const auto entry = watchdog_->begin(name(), call_text(what));
    {
      const auto lock = watchdog_->hold();
      link_->begin_split(color, key);
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
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<DeviceLink> link_;
  std::shared_ptr<DeviceLink> inside_, across_;  // null unless the group can work in two levels
  int ranks_on_host_ = 1;
  HostShape shape_;
  std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(Communicator& host, Device& device) {
  return std::make_unique<StagedCommunicator>("world", not_owned(host), device);
}

std::unique_ptr<Communicator> make_linked(Communicator& host, Device& device, LinkSetup made_of) {
  auto world =
      std::make_unique<LinkedCommunicator>("world", not_owned(host), device, std::move(made_of));
  world->set_policy(host.policy());
  return world;
}

}  // namespace axonn
