#include "axonn/comm/device/device_communicator.h"

#include <cstddef>
#include <exception>
#include <set>
#include <thread>
#include <vector>

#include "axonn/base/check.h"

namespace axonn {

std::shared_ptr<Work::State> DeviceCommunicator::start(Call call) {
  const Buffer& one = call.out.count > 0 ? call.out : call.inp;
  if (one.count == 0 || !device_.holds(one.data)) return start_on(*host_, std::move(call));
  AXONN_CHECK(call.inp.count == 0 || device_.holds(call.inp.data), about(call),
              ": one buffer is in device memory and the other in host memory");
  if (size() > 1) return start_on_device(std::move(call));
  if (call.out.data != call.inp.data) device_.copy(call.out.data, call.inp.data, call.out.bytes());
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
                     std::shared_ptr<DeviceLink> link, Watchdog watchdog)
      : DeviceCommunicator(std::move(name), std::move(host), device),
        watchdog_(std::move(watchdog)),
        stream_(device.make_stream()),
        link_(std::move(link)) {
    if (!link_) return;
    const auto entry = watchdog_->begin(this->name(), call_text("making the group"));
    watchdog_->add(link_);
    try {
      await(*link_);
    } catch (...) {
      watchdog_->end_links();  // the only way to end a link that was never ready
      throw;
    }
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
    if (!fails) watchdog_->remove(link_.get());  // else the watchdog aborts it
    link_.reset();
  }

  bool on_streams() const override { return true; }

  std::unique_ptr<Communicator> split_off(int color, std::string part_name) override {
    std::unique_ptr<Communicator> part = host().split(color, part_name);
    std::shared_ptr<DeviceLink> link;
    if (link_) {
      const auto entry = watchdog_->begin(name(), call_text(concat("split ", part_name)));
      {
        const auto lock = watchdog_->hold();
        // A group of one rank needs no link, but the split is collective.
        link_->begin_split(part->size() > 1 ? color : -1, rank());
      }
      await(*link_);
      link = link_->take_split();
    }
    return std::make_unique<LinkedCommunicator>(std::move(part_name), std::move(part), device(),
                                                std::move(link), watchdog_);
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
    {
      const auto lock = watchdog_->hold();
      link_->enqueue(call, *stream_);
    }
    await(*link_);
    std::shared_ptr<const Event> finished = stream_->record();
    // A captured collective does not run yet, and its events must not be queried.
    if (!device().capturing()) entry.on_device(std::move(ready), finished);
    return std::make_shared<LinkedWork>(watchdog_, compute, std::move(finished));
  }

 private:
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

  Watchdog watchdog_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<DeviceLink> link_;
  std::int64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_staged(Communicator& host, Device& device) {
  return std::make_unique<StagedCommunicator>("world", not_owned(host), device);
}

std::unique_ptr<Communicator> make_linked(Communicator& host, Device& device,
                                          std::shared_ptr<DeviceLink> link, Watchdog watchdog) {
  return std::make_unique<LinkedCommunicator>("world", not_owned(host), device, std::move(link),
                                              std::move(watchdog));
}

}  // namespace axonn
