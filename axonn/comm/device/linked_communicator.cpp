#include "axonn/comm/device/linked_communicator.h"

#include <exception>
#include <thread>

#include "axonn/base/check.h"
#include "axonn/comm/device/device_communicator.h"

namespace axonn {

namespace {

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
    if (std::uncaught_exceptions() > 0) watchdog_->end_links();
    try {
      stream_->synchronize();          // finishes its work before the stream is destroyed
    } catch (const std::exception&) {  // the next use of the device reports it
    }
    watchdog_->remove(link_.get());
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

std::unique_ptr<Communicator> make_linked(Communicator& host, Device& device,
                                          std::shared_ptr<DeviceLink> link, Watchdog watchdog) {
  return std::make_unique<LinkedCommunicator>("world", not_owned(host), device, std::move(link),
                                              std::move(watchdog));
}

}  // namespace axonn
