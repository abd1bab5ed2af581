#include "axonn/compute/ops/guarding_backend.h"

#include <utility>

#include "axonn/compute/tensor/forwarding_device.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

/// Copies and fills are reads and writes, too.
class GuardingBackend::Guarded final : public ForwardingDevice {
 public:
  Guarded(Device& inner, GuardingBackend& guard) : ForwardingDevice(inner), guard_(guard) {}

  void copy(void* to, const void* from, std::int64_t bytes) override {
    compare(from, bytes);
    ForwardingDevice::copy(to, from, bytes);
    guard_.sums_.keep(to, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    ForwardingDevice::fill_zero(to, bytes);
    guard_.sums_.keep(to, bytes);
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    compare(device, bytes);
    ForwardingDevice::copy_to_host(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    ForwardingDevice::copy_from_host(device, host, bytes);
    guard_.sums_.keep(device, bytes);
  }

 private:
  void compare(const void* data, std::int64_t bytes) {
    guard_.judge(guard_.sums_.compare(data, bytes), "a copy");
  }

  GuardingBackend& guard_;
};

GuardingBackend::GuardingBackend(std::unique_ptr<Backend> inner, int threads, std::string rank)
    : CheckingBackend(std::move(inner), std::move(rank)),
      sums_(arena(), threads),
      device_(std::make_unique<Guarded>(ForwardingBackend::device(), *this)) {}

GuardingBackend::~GuardingBackend() = default;

Device& GuardingBackend::device() { return *device_; }

bool GuardingBackend::judge(const ValueSums::Found& found, std::string_view what) {
  if (found.repaired + found.lost == 0) return true;
  const std::string about = corruption(
      concat("bytes that ", what, " reads have changed in memory since they were written"));
  AXONN_CHECK(found.lost == 0, about,
              "; several flipped bits or faulty hardware are likely. Resume from the newest "
              "checkpoint (checkpoint.resume = \"auto\")");
  remark(concat(about, ": ", found.repaired, " flipped bits are set right. If this happens there ",
                "again, take that rank's node out"));
  return false;
}

void GuardingBackend::around(const OperationCall& call, const std::function<void()>& run) {
  ValueSums::Found all;
  for (const View& operand : call.operands) {
    const ValueSums::Found found = sums_.compare(operand);
    all.repaired += found.repaired;
    all.lost += found.lost;
  }
  if (all.repaired + all.lost > 0) judge(all, in_layer(call.name));
  run();
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if (call.writes(i)) sums_.keep(call.operands[i]);
}

}  // namespace axonn
