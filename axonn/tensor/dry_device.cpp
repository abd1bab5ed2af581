#include "axonn/tensor/dry_device.h"

#include <cstring>

namespace axonn {

namespace {

class DryDevice final : public Device {
 public:
  explicit DryDevice(Schedule* schedule) : schedule_(schedule) {}

  std::string name() const override { return "dry"; }

  void* allocate(std::int64_t bytes) override {
    const std::uintptr_t begin = next_;
    next_ += static_cast<std::uintptr_t>(bytes + kPage - 1) / kPage * kPage;
    return reinterpret_cast<void*>(begin);
  }
  void release(void*, std::int64_t) noexcept override {}

  Stream& compute() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<IdleStream>(); }

  void copy(void*, const void*, std::int64_t bytes) override { note("copy", bytes); }
  void fill_zero(void*, std::int64_t bytes) override { note("fill_zero", bytes); }
  void copy_to_host(void* host, const void*, std::int64_t bytes) override {
    if (bytes > 0) std::memset(host, 0, bytes);
    note("copy_to_host", bytes);
  }
  void copy_from_host(void*, const void*, std::int64_t bytes) override {
    note("copy_from_host", bytes);
  }

 private:
  static constexpr std::int64_t kPage = 4096;

  void note(const char* operation, std::int64_t bytes) {
    if (!schedule_) return;
    const Schedule::Matrix whole{.rows = 1, .cols = bytes, .dtype = DType::u8};
    schedule_->events.emplace_back(
        Schedule::Compute{.operation = operation, .layer = {}, .operands = {whole}});
  }

  Schedule* schedule_;
  IdleStream stream_;
  std::uintptr_t next_ = kPage;  // not 0, which would be a null pointer
};

}  // namespace

std::unique_ptr<Device> make_dry_device(Schedule* schedule) {
  return std::make_unique<DryDevice>(schedule);
}

}  // namespace axonn
