#pragma once

#include <functional>
#include <memory>
#include <string>

#include "axonn/compute/tensor/device.h"
#include "axonn/foundation/base/moment.h"

namespace axonn {

/// A Device that passes everything to another one, which must outlive it; copies and fills through
/// around(). Derive from it to time them.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  std::string uuid() const override { return inner_.uuid(); }
  OperationSize operation_size() const override { return inner_.operation_size(); }
  std::int64_t alignment() const override { return inner_.alignment(); }
  Memory memory() const override { return inner_.memory(); }
  void* allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory, std::int64_t bytes) noexcept override {
    inner_.release(memory, bytes);
  }
  Stream& compute() override { return inner_.compute(); }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return inner_.make_stream(priority);
  }
  Moment moment(Stream& stream) override { return inner_.moment(stream); }

  void copy(void* to, const void* from, std::int64_t bytes) override {
    around("copy", 2 * bytes, [&] { inner_.copy(to, from, bytes); });
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    around("fill_zero", bytes, [&] { inner_.fill_zero(to, bytes); });
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    around("copy_to_host", bytes, [&] { inner_.copy_to_host(host, device, bytes); });
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    around("copy_from_host", bytes, [&] { inner_.copy_from_host(device, host, bytes); });
  }

  bool holds(const void* memory) const override { return inner_.holds(memory); }
  bool captures() const override { return inner_.captures(); }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    return inner_.capture(work);
  }
  bool capturing() const override { return inner_.capturing(); }
  bool has_captured() const override { return inner_.has_captured(); }
  Work transfer(FileTransfer transfer, std::int64_t bytes) override {
    return inner_.transfer(transfer, bytes);
  }

 protected:
  /// `bytes`: read and written.
  virtual void around(const char* /*name*/, std::int64_t /*bytes*/,
                      const std::function<void()>& run) {
    run();
  }

 private:
  Device& inner_;
};

}  // namespace axonn
