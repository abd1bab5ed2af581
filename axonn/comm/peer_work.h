#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "axonn/comm/call.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// The most ranks of a group whose devices read each other's memory: pointers to all of it are a
/// kernel's arguments.
inline constexpr int kMostPeers = 32;

/// What one rank's device does of a collective on memory of several ranks' devices: plain data.
///
///   kind     does                                                        count
///   reduce   every outs[k][i] = inps[0][i] + inps[1][i] + ..., so too    elements
///            the max or min
///   copy     outs[k][i] = inps[k][i]                                     bytes
///   swap     copy, but what two neighbours k and k + 1 (k even) read is  bytes
///            read before either is written: they may be each other's
///
/// Elements do not depend on each other. An out may be the same array as an inp, at the same
/// elements.
struct PeerWork {
  enum class Kind { reduce, copy, swap };
  Kind kind = Kind::copy;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = 0;
  int outs_count = 0, inps_count = 0;
  std::array<void*, kMostPeers + 2> outs = {};
  std::array<const void*, kMostPeers + 2> inps = {};

  bool empty() const { return count == 0 || outs_count == 0; }
};

/// The part of rank `rank` in a collective, of which these are all ranks' calls in rank order (a
/// send, then its recv). No byte that one rank's part writes is read or written by another's, so
/// the parts may be done in any order and at once. Bandwidth: an all_reduce reads and writes every
/// rank's n once, an n-th part a rank.
///
/// Sums are reduce()'s to the bit.
PeerWork part_of(std::span<const Call> calls, int rank);

/// Runs work on one rank's device. Any thread may call it.
class PeerKernels {
 public:
  virtual ~PeerKernels() = default;
  /// Runs f, which enqueues on streams of the rank's device and records events on them.
  virtual void on_device(const std::function<void()>& f) = 0;
  /// Puts the work on a stream of the rank's device. Within on_device().
  virtual void enqueue(Stream& stream, const PeerWork& work) = 0;
};

/// What runs work on this rank's card, of which the memory of all ranks' cards can be read and
/// written; null on every rank where one cannot reach another's, where they are not cards, and
/// where a group has more ranks than kMostPeers. Collective over host, whose ranks are threads of
/// this process.
std::shared_ptr<PeerKernels> make_peer_kernels(Communicator& host, Device& device);

}  // namespace axonn
