#pragma once

#include <memory>
#include <set>
#include <string>

#include "axonn/compute/tensor/device.h"

namespace axonn::testing_support {

/// A device that claims that the host cannot access its memory, so that transports must use the
/// device's copies. It is host memory, so that anything can compute on it.
class GpuOfHostMemory final : public Device {
 public:
  /// `memory`: what it says of itself; with Memory::gpu, code of the host refuses its tensors.
  explicit GpuOfHostMemory(Memory memory = Memory::host) : memory_(memory) {}

  std::string name() const override { return "gpu of host memory"; }
  Memory memory() const override { return memory_; }
  std::string uuid() const override { return "0123456789abcdef"; }

  void* allocate(std::int64_t bytes) override {
    void* memory = inner_->allocate(bytes);
    allocated_.emplace(static_cast<char*>(memory), static_cast<char*>(memory) + bytes);
    return memory;
  }
  void release(void* memory, std::int64_t bytes) noexcept override {
    allocated_.erase({static_cast<char*>(memory), static_cast<char*>(memory) + bytes});
    inner_->release(memory, bytes);
  }

  Stream& compute() override { return inner_->compute(); }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return inner_->make_stream(priority);
  }

  void copy(void* to, const void* from, std::int64_t bytes) override {
    ++copies_;
    inner_->copy(to, from, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes) override { inner_->fill_zero(to, bytes); }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    ++copies_;
    inner_->copy_to_host(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    ++copies_;
    inner_->copy_from_host(device, host, bytes);
  }

  bool holds(const void* memory) const override {
    if (everything_) return true;
    for (const auto& [begin, end] : allocated_)
      if (memory >= begin && memory < end) return true;
    return false;
  }

  /// From now on all memory counts as the device's.
  void holds_everything() { everything_ = true; }
  /// The number of copies so far.
  int copies() const { return copies_; }

 private:
  Memory memory_;
  std::unique_ptr<Device> inner_ = make_cpu_device();
  std::set<std::pair<char*, char*>> allocated_;
  bool everything_ = false;
  int copies_ = 0;
};

}  // namespace axonn::testing_support
