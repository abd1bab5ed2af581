#include "axonn/ranks/comm/device/nccl.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <nccl.h>

#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/device/device_communicator.h"

namespace axonn {

namespace {

void check(const char* function, ncclResult_t status, Where where = Where::here()) {
  if (status != ncclSuccess)
    fail(where, function, ": ", ncclGetErrorString(status), ": ", ncclGetLastError(nullptr),
         "; NCCL_DEBUG=WARN gives details");
}

ncclDataType_t type_of(DType dtype) {
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclBfloat16, ncclFloat16, ncclFloat64,
                                       ncclInt32,   ncclInt64,    ncclUint8};
  return kTypes[static_cast<int>(dtype)];
}

ncclRedOp_t reduction_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

/// A non-blocking NCCL communicator, which can be aborted at any time.
class NcclLink final : public DeviceLink {
 public:
  /// The caller sets handle().
  explicit NcclLink(int size) : size_(size) {}
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink() override {
    if (!comm_) return;
    // One that has failed, or has a call in progress, must not be destroyed.
    ncclResult_t now = ncclSuccess;
    const bool healthy = ncclCommGetAsyncError(comm_, &now) == ncclSuccess && now == ncclSuccess;
    healthy ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
  }

  ncclComm_t& handle() { return comm_; }

  /// Checks the status of a call; one in progress is not an error.
  void begun(const char* function, ncclResult_t status, Where where = Where::here()) {
    latest_ = function;
    if (status != ncclInProgress) check(function, status, where);
  }

  void enqueue(const Call& call, Stream& stream) override {
    const auto count = static_cast<std::size_t>(call.count(size_));
    const ncclDataType_t type = type_of(call.dtype());
    const cudaStream_t on = cuda::handle_of(stream);
    const void* const inp = call.inp.data;
    void* const out = call.out.data;
    switch (call.operation) {
      case Operation::all_reduce:
        return begun("ncclAllReduce",
                     ncclAllReduce(inp, out, count, type, reduction_of(call.op), comm_, on));
      case Operation::all_gather:
        return begun("ncclAllGather", ncclAllGather(inp, out, count, type, comm_, on));
      case Operation::reduce_scatter:
        return begun("ncclReduceScatter",
                     ncclReduceScatter(inp, out, count, type, ncclSum, comm_, on));
      case Operation::broadcast:
        return begun("ncclBroadcast", ncclBroadcast(inp, out, count, type, call.peer, comm_, on));
      case Operation::all_to_all:
      case Operation::send:
      case Operation::recv:
        return exchange(call, on);
      case Operation::barrier:
        return;  // never gets here, because a barrier has no device buffer
    }
  }

  void enqueue(const Transpose& of, Stream& stream) override {
    const auto bytes = static_cast<std::size_t>(of.bytes),
               inp_row = static_cast<std::size_t>(of.columns) * bytes,
               out_row = static_cast<std::size_t>(of.rows) * bytes;
    auto* const out = static_cast<char*>(of.out);
    const auto* const inp = static_cast<const char*>(of.inp);
    const auto copy = [&](char* to, std::size_t to_step, const char* from, std::size_t from_step,
                          std::int64_t count) {
      cuda::check(
          "cudaMemcpy2DAsync",
          cudaMemcpy2DAsync(to, to_step, from, from_step, bytes, static_cast<std::size_t>(count),
                            cudaMemcpyDeviceToDevice, cuda::handle_of(stream)));
    };
    // As few copies as possible: one for each row or for each column.
    for (std::int64_t row = 0; of.rows <= of.columns && row < of.rows; ++row)
      copy(out + row * of.bytes, out_row, inp + row * static_cast<std::int64_t>(inp_row), bytes,
           of.columns);
    for (std::int64_t column = 0; of.rows > of.columns && column < of.columns; ++column)
      copy(out + column * static_cast<std::int64_t>(out_row), bytes, inp + column * of.bytes,
           inp_row, of.rows);
  }

  void begin_split(const Split& split) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (split.blocks > 0) config.maxCTAs = split.blocks;
    part_ = std::make_shared<NcclLink>(0);
    part_->latest_ = "ncclCommSplit";
    const int color = split.color < 0 ? NCCL_SPLIT_NOCOLOR : split.color;
    begun("ncclCommSplit", ncclCommSplit(comm_, color, split.key, &part_->comm_, &config));
  }
  std::shared_ptr<DeviceLink> take_split() override {
    const auto part = std::exchange(part_, nullptr);
    return part->comm_ ? part : nullptr;
  }

  bool ready() override {
    const ncclResult_t now = state();
    if (now == ncclInProgress) return false;
    check(latest_, now);
    if (size_ == 0) check("ncclCommCount", ncclCommCount(comm_, &size_));
    return true;
  }

  std::string trouble() override {
    const ncclResult_t now = state();
    if (now == ncclSuccess || now == ncclInProgress) return {};
    return concat(latest_, ": ", ncclGetErrorString(now), ": ", ncclGetLastError(comm_),
                  "; another rank or the network has failed");
  }

 private:
  ncclResult_t state() const {
    ncclResult_t now = ncclSuccess;
    check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &now));
    return now;
  }

  /// A send, a receive, or an all_to_all. A single send or receive, too, is in an NCCL group:
  /// without one, it may report that it is done before it is on the stream. Pieces without elements
  /// are not sent: both ranks know their counts.
  void exchange(const Call& call, cudaStream_t stream) {
    const ncclDataType_t type = type_of(call.dtype());
    ncclResult_t first = ncclSuccess;  // error; the group must be ended all the same
    const char* failed = nullptr;
    const auto keep = [&](const char* function, ncclResult_t status) {
      if (first != ncclSuccess && first != ncclInProgress) return;
      first = status;
      failed = function;
    };
    const auto send = [&](const Buffer& data, int to) {
      const auto count = static_cast<std::size_t>(data.count);
      if (count > 0) keep("ncclSend", ncclSend(data.data, count, type, to, comm_, stream));
    };
    const auto recv = [&](const Buffer& data, int sender) {
      const auto count = static_cast<std::size_t>(data.count);
      if (count > 0) keep("ncclRecv", ncclRecv(data.data, count, type, sender, comm_, stream));
    };
    check("ncclGroupStart", ncclGroupStart());
    if (call.operation == Operation::send) send(call.inp, call.peer);
    if (call.operation == Operation::recv) recv(call.out, call.peer);
    for (int peer = 0; peer < size_ && !call.is_pair(); ++peer) {
      send(call.piece_to(peer, size_), peer);
      recv(call.piece_from(peer, size_), peer);
    }
    keep("ncclGroupEnd", ncclGroupEnd());
    begun(failed, first);
  }

  ncclComm_t comm_ = nullptr;
  int size_;                 // 0: unknown until it is ready
  const char* latest_ = "";  // the function that was called last, whose work may be in progress
  std::shared_ptr<NcclLink> part_;
};

class NcclLibrary final : public DeviceLibrary {
 public:
  NcclLibrary() { cuda::check("cudaGetDevice", cudaGetDevice(&device_)); }

  void enter_thread() override {
    cuda::check("cudaSetDevice", cudaSetDevice(device_));
    // In this mode, querying events does not disturb a graph that the rank's thread captures.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    cuda::check("cudaThreadExchangeStreamCaptureMode", cudaThreadExchangeStreamCaptureMode(&mode));
  }

  void abort(std::span<const std::shared_ptr<DeviceLink>> links) noexcept override {
    // In one NCCL group, because one communicator's kernels may wait behind another's.
    ncclGroupStart();
    for (const auto& link : links)
      if (ncclComm_t& comm = static_cast<NcclLink&>(*link).handle())
        ncclCommAbort(std::exchange(comm, nullptr));
    ncclGroupEnd();
  }

 private:
  int device_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl(Communicator& host, Arena& arena, double timeout_seconds,
                                        const std::string& host_name) {
  std::shared_ptr<NcclLink> link;
  std::shared_ptr<DeviceWatchdog> watchdog;
  if (host.size() > 1) {
    watchdog = std::make_shared<DeviceWatchdog>(
        host, std::make_unique<NcclLibrary>(),
        DeviceWatchdog::Options{.timeout_seconds = timeout_seconds});
    ncclUniqueId id{};
    if (host.rank() == 0) check("ncclGetUniqueId", ncclGetUniqueId(&id));
    const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(&id), sizeof id);
    host.broadcast(buffer(bytes), 0, "nccl").wait();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    link = std::make_shared<NcclLink>(host.size());
    link->begun("ncclCommInitRankConfig",
                ncclCommInitRankConfig(&link->handle(), host.size(), id, host.rank(), &config));
  }
  return make_linked(host, arena, {std::move(link), std::move(watchdog), host_name});
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace axonn
