#include "axonn/comm/nccl.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <nccl.h>

#include "axonn/base/check.h"
#include "axonn/comm/device_communicator.h"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn {

namespace {

void check(ncclResult_t status, Where where = Where::here()) {
  if (status != ncclSuccess)
    fail(where, "NCCL: ", ncclGetErrorString(status), ": ", ncclGetLastError(nullptr),
         "; NCCL_DEBUG=WARN says more");
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t reduction_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

/// Owns a communicator of NCCL's.
class Handle {
 public:
  explicit Handle(ncclComm_t comm) : comm_(comm) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (comm_) ncclCommDestroy(comm_);
  }

  ncclComm_t get() const { return comm_; }
  /// Kernels that wait for another rank end; every later call is an error.
  void abort() noexcept {
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }

 private:
  ncclComm_t comm_;
};

/// A collective on its group's stream.
class StreamedWork final : public Work::State {
 public:
  StreamedWork(Stream& compute, std::unique_ptr<Event> finished)
      : compute_(compute), finished_(std::move(finished)) {}
  void wait() override { compute_.wait(*finished_); }
  bool done() override { return finished_->done(); }

 private:
  Stream& compute_;
  std::unique_ptr<Event> finished_;
};

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(std::string name, Communicator& host, Device& device, ncclComm_t comm)
      : DeviceCommunicator(std::move(name), host, device),
        stream_(device.make_stream()),
        comm_(comm) {}
  /// comm is null in a group of one.
  NcclCommunicator(std::string name, std::unique_ptr<Communicator> host, Device& device,
                   ncclComm_t comm)
      : DeviceCommunicator(std::move(name), std::move(host), device),
        stream_(device.make_stream()),
        comm_(comm) {}
  ~NcclCommunicator() override {
    // An error ends this rank, and others may never come to what it has started.
    if (std::uncaught_exceptions() > 0) comm_.abort();
    cudaStreamSynchronize(stream());  // what was started is done before its stream goes
  }

  bool on_streams() const override { return true; }

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    std::unique_ptr<Communicator> part = host().split(color, name);
    ncclComm_t comm = nullptr;
    if (size() > 1) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.splitShare = 1;  // connections and buffers are the parent's where they can be
      // A group of one needs none, but every rank takes part in the split.
      check(ncclCommSplit(alive(), part->size() > 1 ? color : NCCL_SPLIT_NOCOLOR, rank(), &comm,
                          &config));
    }
    return std::make_unique<NcclCommunicator>(std::move(name), std::move(part), device(), comm);
  }

  void abort(const std::string& reason) noexcept override {
    DeviceCommunicator::abort(reason);
    comm_.abort();
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    Stream& compute = device().compute();
    stream_->wait(*compute.record());
    enqueue(call);
    ncclResult_t status = ncclSuccess;
    check(ncclCommGetAsyncError(alive(), &status));
    AXONN_CHECK(status == ncclSuccess, describe(call), " on group ", name(),
                ": NCCL: ", ncclGetErrorString(status), "; another rank or the network has failed");
    return std::make_shared<StreamedWork>(compute, stream_->record());
  }

 private:
  cudaStream_t stream() const { return cuda::handle_of(*stream_); }

  ncclComm_t alive() const {
    AXONN_CHECK(comm_.get(), "group ", name(), " was aborted");
    return comm_.get();
  }

  void enqueue(const Call& call) {
    const std::int64_t n = call.count(size());
    const auto count = static_cast<std::size_t>(n);
    const ncclDataType_t type = type_of(call.dtype());
    switch (call.operation) {
      case Operation::all_reduce:
        return check(ncclAllReduce(call.inp.data, call.out.data, count, type, reduction_of(call.op),
                                   alive(), stream()));
      case Operation::all_gather:
        return check(ncclAllGather(call.inp.data, call.out.data, count, type, alive(), stream()));
      case Operation::reduce_scatter:
        return check(ncclReduceScatter(call.inp.data, call.out.data, count, type, ncclSum, alive(),
                                       stream()));
      case Operation::broadcast:
        return check(
            ncclBroadcast(call.inp.data, call.out.data, count, type, call.peer, alive(), stream()));
      case Operation::all_to_all:
        return exchange(call, n);
      case Operation::send:
        return check(ncclSend(call.inp.data, count, type, call.peer, alive(), stream()));
      case Operation::recv:
        return check(ncclRecv(call.out.data, count, type, call.peer, alive(), stream()));
      case Operation::barrier:
        return;  // has no buffer, so it never gets here
    }
  }

  /// all_to_all, n elements to each rank. In place it sends from a copy.
  void exchange(const Call& call, std::int64_t n) {
    void* copy = nullptr;
    const auto bytes = static_cast<std::size_t>(call.inp.bytes());
    Buffer from = call.inp;
    if (call.inp.data == call.out.data) {
      cuda::check(cudaMallocAsync(&copy, bytes, stream()));
      cuda::check(cudaMemcpyAsync(copy, call.inp.data, bytes, cudaMemcpyDeviceToDevice, stream()));
      from.data = copy;
    }
    const auto count = static_cast<std::size_t>(n);
    const ncclDataType_t type = type_of(call.dtype());
    check(ncclGroupStart());
    for (int peer = 0; peer < size(); ++peer) {
      check(ncclSend(part(from, peer * n, n).data, count, type, peer, alive(), stream()));
      check(ncclRecv(part(call.out, peer * n, n).data, count, type, peer, alive(), stream()));
    }
    check(ncclGroupEnd());
    if (copy) cuda::check(cudaFreeAsync(copy, stream()));
  }

  std::unique_ptr<Stream> stream_;
  Handle comm_;
};

std::vector<std::uint8_t> gathered(Communicator& host, const std::string& mine) {
  std::vector<std::uint8_t> bytes(mine.begin(), mine.end()), all(bytes.size() * host.size());
  host.all_gather(buffer(std::span(all)), buffer(std::span(bytes)), "cards").wait();
  return all;
}

}  // namespace

bool have_own_cards(Communicator& host, const Device& device) {
  const std::string mine = device.uuid();
  const std::vector<std::uint8_t> all = gathered(host, mine);
  std::vector<std::string> uuids;
  for (auto at = all.begin(); at != all.end(); at += std::ssize(mine))
    uuids.emplace_back(at, at + std::ssize(mine));
  std::ranges::sort(uuids);
  return std::ranges::adjacent_find(uuids) == uuids.end();
}

std::unique_ptr<Communicator> make_nccl(Communicator& host, Device& device) {
  if (!have_own_cards(host, device))
    refuse(
        "nccl: two ranks share a card, and NCCL wants one each; start as many ranks as there ",
        "are cards, or take parallelism.transport = \"threads\" or \"mpi\", through which ranks ",
        "may share one");
  ncclComm_t comm = nullptr;
  if (host.size() > 1) {
    ncclUniqueId id{};
    if (host.rank() == 0) check(ncclGetUniqueId(&id));
    const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(&id), sizeof id);
    host.broadcast(buffer(bytes), 0, "nccl").wait();
    check(ncclCommInitRank(&comm, host.size(), id, host.rank()));
  }
  return std::make_unique<NcclCommunicator>("world", host, device, comm);
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace axonn
