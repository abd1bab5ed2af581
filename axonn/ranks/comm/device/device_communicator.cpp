#include "axonn/ranks/comm/device/device_communicator.h"

#include <cstddef>
#include <set>
#include <vector>

#include "axonn/foundation/base/check.h"

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

}  // namespace

std::unique_ptr<Communicator> make_staged(Communicator& host, Device& device) {
  return std::make_unique<StagedCommunicator>("world", not_owned(host), device);
}

}  // namespace axonn
