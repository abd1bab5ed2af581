#include "axonn/compute/tensor/device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "axonn/compute/tensor/recording.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/moment.h"

namespace axonn {

Moment Work::State::moment() { return Moment::now(); }

std::optional<std::pair<Moment, Moment>> Work::State::span() { return std::nullopt; }

Moment Device::moment(Stream&) { return Moment::now(); }

std::unique_ptr<Graph> Device::capture(const std::function<void()>&) {
  fail(Where::here(), "device ", name(), " cannot capture graphs; check captures() first");
}

namespace {

class DoneEvent : public Event {
 public:
  bool done() const override { return true; }
};

class CpuDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }

  void* allocate(std::int64_t bytes) override {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw OutOfMemory(concat(
          "out of memory: ", bytes, " bytes requested from the system: ", std::strerror(errno),
          "; use more ranks, a smaller micro_batch or activation checkpointing"));
    madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults and TLB misses; may fail
    return memory;
  }
  void release(void* memory, std::int64_t bytes) noexcept override { munmap(memory, bytes); }

  Stream& compute() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override {
    return std::make_unique<IdleStream>();
  }

  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    // All threads of the rank share the work: each step clears the gradients of the whole model.
    constexpr std::int64_t kPiece = std::int64_t{1} << 20;
#pragma omp parallel for if (bytes > kPiece)
    for (std::int64_t begin = 0; begin < bytes; begin += kPiece)
      std::memset(static_cast<char*>(to) + begin, 0, std::min(kPiece, bytes - begin));
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    copy(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    copy(device, host, bytes);
  }

 private:
  IdleStream stream_;
};

class DryDevice final : public Device {
 public:
  DryDevice(Recording* recording, OperationSize size) : recording_(recording), size_(size) {}

  std::string name() const override { return "dry"; }
  OperationSize operation_size() const override { return size_; }
  Memory memory() const override { return Memory::none; }

  void* allocate(std::int64_t bytes) override {
    const std::uintptr_t begin = next_;
    next_ += static_cast<std::uintptr_t>(bytes + kPage - 1) / kPage * kPage;
    return reinterpret_cast<void*>(begin);
  }
  void release(void*, std::int64_t) noexcept override {}

  Stream& compute() override { return stream_; }
  std::unique_ptr<Stream> make_stream(StreamPriority) override {
    return std::make_unique<IdleStream>();
  }

  void copy(void*, const void*, std::int64_t bytes) override { note("copy", bytes, 2); }
  void fill_zero(void*, std::int64_t bytes) override { note("fill_zero", bytes); }
  /// host may be null.
  void copy_to_host(void* host, const void*, std::int64_t bytes) override {
    if (host && bytes > 0) std::memset(host, 0, bytes);
    note("copy_to_host", bytes);
  }
  void copy_from_host(void*, const void*, std::int64_t bytes) override {
    note("copy_from_host", bytes);
  }

  Work transfer(FileTransfer transfer, std::int64_t bytes) override {
    const bool read = transfer == FileTransfer::read;
    auto state = record_start(recording_, {.group = Recording::kDisk,
                                           .operation = "transfer",
                                           .label = read ? "read" : "write",
                                           .bytes = bytes});
    return read ? Work(std::move(state)) : Work();
  }

 private:
  static constexpr std::int64_t kPage = 4096;

  void note(const char* operation, std::int64_t bytes, int passes = 1) {
    if (!recording_ || recording_->paused) return;
    const Recording::Matrix whole{.rows = 1, .cols = bytes, .dtype = DType::u8, .passes = passes};
    recording_->events.emplace_back(Recording::Compute{
        .operation = operation, .kind = OperationKind::device, .layer = {}, .operands = {whole}});
  }

  Recording* recording_;
  OperationSize size_;
  IdleStream stream_;
  std::uintptr_t next_ = kPage;  // not 0, which would be a null pointer
};

}  // namespace

std::unique_ptr<Event> IdleStream::record() { return std::make_unique<DoneEvent>(); }

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

std::unique_ptr<Device> make_dry_device(Recording* recording, OperationSize size) {
  return std::make_unique<DryDevice>(recording, size);
}

}  // namespace axonn
