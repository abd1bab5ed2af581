#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "axonn/compute/tensor/device.h"
#include "axonn/ranks/comm/call.h"

namespace axonn {

/// Maximum ranks of a group whose devices access each other's memory: pointers to all buffers are
/// kernel arguments.
inline constexpr int kMostPeers = 32;

/// The part of a collective that one rank's device does, on the memory of several devices. Plain
/// data.
///
///   kind     does                                                        size
///   reduce   every outs[k][i] = the sum (max, min) of all inps[r][i],    count elements
///            as reduce() of axonn/ranks/comm/reduce.h
///   copy     outs[k][i] = inps[k][i]                                     bytes[k]
///   swap     copy, but inps k and k + 1 (k even) are both read before    bytes[k], the same for
///            outs k and k + 1 are written, since these may be the same   k + 1
///
/// Elements are independent of each other. An out may be the same array as an inp, but must not
/// overlap one otherwise.
struct PeerWork {
  enum class Kind { reduce, copy, swap };
  Kind kind = Kind::copy;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = 0;
  int outs_count = 0, inps_count = 0;
  std::array<void*, kMostPeers + 2> outs = {};
  std::array<const void*, kMostPeers + 2> inps = {};
  std::array<std::int64_t, kMostPeers + 2> bytes = {};

  bool empty() const { return (kind == Kind::reduce && count == 0) || outs_count == 0; }
};

/// Returns the part of rank `rank` in a collective. `calls` has the calls of all ranks in rank
/// order (or a send, then its recv). No part writes bytes that another part reads or writes, so the
/// parts may run in any order and concurrently. Memory traffic of an all_reduce: each rank's part
/// reads and writes 1 / size of every rank's n elements.
///
/// Sums have the same bits as reduce().
PeerWork part_of(std::span<const Call> calls, int rank);

/// Runs work on one rank's device. Thread-safe.
class PeerKernels {
 public:
  virtual ~PeerKernels() = default;
  /// Runs f, which enqueues on streams of the rank's device and records events on them.
  virtual void on_device(const std::function<void()>& f) = 0;
  /// Enqueues the work on a stream of the rank's device. Call it within on_device().
  virtual void enqueue(Stream& stream, const PeerWork& work) = 0;
};

/// Returns the kernels of this rank's GPU, which can then access the memory of all ranks' GPUs.
/// Returns null on every rank if one GPU cannot access another's memory, if a device is not a GPU,
/// or if there are more than kMostPeers ranks. Collective over host, whose ranks must be threads of
/// this process.
std::shared_ptr<PeerKernels> make_peer_kernels(Communicator& host, Device& device);

/// Makes a group whose ranks, threads of one process, exchange device memory without the host. They
/// share one GPU, or have several GPUs that can access each other's memory.
///
/// A rank that starts a collective makes the same call on the host group, with the addresses of its
/// buffers on the device and an event, after which they may be read. The last rank to arrive
/// enqueues each rank's part of the work (part_of) on that rank's stream of the group, after all
/// these events, and records an event after all parts. Work::wait() makes the compute stream wait
/// for that event. So no rank touches a buffer that another rank still computes on or reads. In
/// Work::wait() the host waits until all ranks have arrived, by the host transport, whose watchdog
/// names missing ranks. It never waits for a device.
///
/// Sums have the same bits as the host transport's. host and device must outlive the group. Throws
/// Error if the ranks of host are not threads.
std::unique_ptr<Communicator> make_device_threads(Communicator& host, Device& device,
                                                  std::shared_ptr<PeerKernels> kernels);

}  // namespace axonn
