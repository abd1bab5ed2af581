#include "axonn/ranks/comm/device/device_threads.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/moment.h"
#include "axonn/ranks/comm/device/device_communicator.h"

namespace axonn {

namespace {

/// Adds a pair of arrays to a copy or a swap.
void add(PeerWork& work, const Buffer& out, const Buffer& inp) {
  if (out.count == 0 || (out.data == inp.data && work.kind == PeerWork::Kind::copy)) return;
  work.bytes[work.outs_count] = out.bytes();
  work.outs[work.outs_count++] = out.data;
  work.inps[work.inps_count++] = inp.data;
}

/// Calls f(other) for all `size` ranks, from the one after `rank` on: so ranks that work at the
/// same pace read, and write, the memory of different ranks.
void for_each_from(int rank, int size, const auto& f) {
  for (int step = 1; step <= size; ++step) f((rank + step) % size);
}

/// A reduction of elements [begin, begin + count) of every rank's inp. The caller adds the outs.
PeerWork reduce_of(std::span<const Call> calls, std::int64_t begin, std::int64_t count) {
  PeerWork work{
      .kind = PeerWork::Kind::reduce, .dtype = calls[0].dtype(), .op = calls[0].op, .count = count};
  for (const Call& call : calls) work.inps[work.inps_count++] = part(call.inp, begin, count).data;
  return work;
}

/// An all_reduce: each rank reduces one part and writes it to all ranks.
PeerWork all_reduce(std::span<const Call> calls, int rank) {
  const std::int64_t n = calls[0].out.count, size = std::ssize(calls);
  // Parts are multiples of 16 bytes, so they are aligned if the buffers are.
  const std::int64_t unit = 16 / bytes_of(calls[0].dtype()),
                     each = (n + size * unit - 1) / (size * unit) * unit,
                     begin = std::min(n, rank * each), count = std::min(n - begin, each);
  PeerWork work = reduce_of(calls, begin, count);
  for_each_from(rank, static_cast<int>(size), [&](int other) {
    work.outs[work.outs_count++] = part(calls[other].out, begin, count).data;
  });
  return work;
}

/// An all_to_all: for each pair of ranks, one of them swaps both pieces, because out and inp may be
/// the same buffer. Pieces that differ are never in place: each rank copies those for it.
PeerWork all_to_all(std::span<const Call> calls, int rank) {
  const auto size = static_cast<int>(calls.size());
  const auto move = [&](PeerWork& work, int to, int from) {
    add(work, calls[to].piece_from(from, size), calls[from].piece_to(to, size));
  };
  PeerWork work{.kind = calls[rank].counted() ? PeerWork::Kind::copy : PeerWork::Kind::swap};
  for_each_from(rank, size, [&](int other) {
    if (work.kind == PeerWork::Kind::copy) {
      move(work, rank, other);
    } else if ((rank + other) % 2 == 1 ? rank < other : rank >= other) {
      move(work, rank, other);
      move(work, other, rank);
    }
  });
  return work;
}

/// A rank's event, stream and kernels for one collective.
class PeerPart final : public DevicePart {
 public:
  /// The rank's buffers may be used after the event `ready`, and its part runs on `stream`.
  PeerPart(std::shared_ptr<const Event> ready, std::shared_ptr<Stream> stream,
           std::shared_ptr<PeerKernels> kernels)
      : ready_(std::move(ready)), stream_(std::move(stream)), kernels_(std::move(kernels)) {}

  void enqueue_all(std::span<const Call> calls) override {
    try {
      const auto done = enqueued(calls);
      for (const Call& call : calls) of(call).done_ = done;
    } catch (...) {
      for (const Call& call : calls) of(call).finish();
      throw;
    }
  }

  /// The event after all parts; null before enqueue_all().
  const std::shared_ptr<const Event>& done() const { return done_; }

 private:
  static PeerPart& of(const Call& call) { return static_cast<PeerPart&>(*call.device); }

  // One rank's stream waits for all events, and the others wait for that stream. This takes about
  // three waits per rank, instead of one per pair of ranks.
  static std::shared_ptr<const Event> enqueued(std::span<const Call> calls) {
    const PeerPart& gathers = of(calls.back());
    std::shared_ptr<const Event> all_ready, done;
    gathers.kernels_->on_device([&] {
      for (const Call& call : calls) gathers.stream_->wait(*of(call).ready_);
      all_ready = gathers.stream_->record();
    });
    std::vector<std::shared_ptr<const Event>> parts;
    for (int party = 0; party < static_cast<int>(calls.size()); ++party) {
      const PeerWork work = part_of(calls, party);
      if (work.empty()) continue;
      const PeerPart& part = of(calls[party]);
      part.kernels_->on_device([&] {
        part.stream_->wait(*all_ready);
        part.kernels_->enqueue(*part.stream_, work);
        parts.push_back(part.stream_->record());
      });
    }
    gathers.kernels_->on_device([&] {
      for (const auto& part : parts) gathers.stream_->wait(*part);
      done = gathers.stream_->record();
    });
    return done;
  }

  void finish() noexcept {
    try {
      kernels_->on_device([&] { stream_->synchronize(); });
    } catch (const std::exception&) {  // the device has failed, so nothing runs on it any more
    }
  }

  std::shared_ptr<const Event> ready_, done_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<PeerKernels> kernels_;
};

/// State of a collective, whose wait lasts on the host until all ranks have arrived.
class PeerWait final : public Work::State {
 public:
  PeerWait(Device& device, std::shared_ptr<PeerPart> part, std::shared_ptr<Work::State> arrived)
      : device_(device), part_(std::move(part)), arrived_(std::move(arrived)) {}

  void wait() override {
    arrived_->wait();
    const Event& after_all = *part_->done();
    try {
      device_.compute().wait(after_all);
    } catch (...) {
      try {  // the buffers may be freed when no device uses them any more
        while (!after_all.done()) std::this_thread::yield();
      } catch (const std::exception&) {  // the device has failed, so nothing runs on it any more
      }
      throw;
    }
  }
  bool done() override {
    return arrived_->done() && (!part_->done() || part_->done()->done());  // null: it has failed
  }

  Moment moment() override { return device_.moment(device_.compute()); }

 private:
  Device& device_;
  std::shared_ptr<PeerPart> part_;
  std::shared_ptr<Work::State> arrived_;
};

class DeviceThreads final : public DeviceCommunicator {
 public:
  DeviceThreads(std::string name, std::shared_ptr<Communicator> host, Device& device,
                std::shared_ptr<PeerKernels> kernels)
      : DeviceCommunicator(std::move(name), std::move(host), device),
        stream_(device.make_stream(StreamPriority::high)),
        kernels_(std::move(kernels)) {}

  ~DeviceThreads() override {
    try {
      stream_->synchronize();          // finishes its work before the device is destroyed
    } catch (const std::exception&) {  // the next use of the device reports it
    }
  }

  std::unique_ptr<Communicator> split_off(int color, std::string part_name) override {
    std::unique_ptr<Communicator> part = host().split(color, part_name);
    return std::make_unique<DeviceThreads>(std::move(part_name), std::move(part), device(),
                                           kernels_);
  }

 protected:
  std::shared_ptr<Work::State> start_on_device(Call call) override {
    auto part = std::make_shared<PeerPart>(device().compute().record(), stream_, kernels_);
    call.device = part;
    auto arrived = start_on(host(), std::move(call));
    return std::make_shared<PeerWait>(device(), std::move(part), std::move(arrived));
  }

 private:
  std::shared_ptr<Stream> stream_;  // shared with collectives that are in flight
  std::shared_ptr<PeerKernels> kernels_;
};

}  // namespace

PeerWork part_of(std::span<const Call> calls, int rank) {
  const Call& mine = calls[rank];
  const auto size = static_cast<int>(calls.size());
  switch (mine.operation) {
    case Operation::all_reduce:
      return all_reduce(calls, rank);
    case Operation::reduce_scatter: {
      PeerWork work = reduce_of(calls, rank * mine.out.count, mine.out.count);
      work.outs[work.outs_count++] = mine.out.data;
      return work;
    }
    case Operation::all_gather: {
      PeerWork work;
      for_each_from(rank, size, [&](int r) {
        add(work, part(mine.out, r * mine.inp.count, mine.inp.count), calls[r].inp);
      });
      return work;
    }
    case Operation::all_to_all:
      return all_to_all(calls, rank);
    case Operation::broadcast:
    case Operation::recv: {
      const int from = mine.operation == Operation::broadcast ? mine.peer : 0;
      PeerWork work;
      add(work, mine.out, calls[from].inp);
      return work;
    }
    case Operation::send:
    case Operation::barrier:
      return {};
  }
  return {};
}

std::unique_ptr<Communicator> make_device_threads(Communicator& host, Device& device,
                                                  std::shared_ptr<PeerKernels> kernels) {
  AXONN_CHECK(host.in_one_process(), "device_threads: the ranks of the host group are no threads");
  return std::make_unique<DeviceThreads>("world", not_owned(host), device, std::move(kernels));
}

}  // namespace axonn
