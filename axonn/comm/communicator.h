#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "axonn/tensor/dtype.h"
#include "axonn/tensor/work.h"

namespace axonn {

class Trace;

/// `count` elements somewhere in device memory; not owned.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;

  std::int64_t bytes() const { return count * bytes_of(dtype); }
};

/// A span of host values as a Buffer.
template <typename T>
Buffer buffer(std::span<T> values) {
  return {const_cast<std::remove_const_t<T>*>(values.data()),
          static_cast<std::int64_t>(values.size()), dtype_of<std::remove_const_t<T>>};
}

enum class ReduceOp { sum, max, min };

enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier
};

inline constexpr int kOperations = 8;

std::string_view name_of(Operation operation);

/// How long a group's waits took: what its rank's compute could not hide.
struct CommStats {
  std::array<double, kOperations> waited_seconds_by{};  ///< by Operation; they add up to the next
  double waited_seconds = 0;                            ///< time that this rank spent in Work::wait
  std::int64_t bytes = 0;  ///< bytes of the buffers that this rank handed in
  std::int64_t calls = 0;
};

/// A fixed, ordered group of ranks that exchange buffers.
///
/// Every rank of a group calls the same collectives in the same order with the same counts and
/// types. A collective starts at once and returns a Work; its buffers must live, and stay
/// untouched, until that Work is done. A group of one rank is legal everywhere and free, so callers
/// never test size() == 1. Counts are elements. Buffers do not overlap unless they are the same.
///
/// Sums are made in rank order, in f32 for f32 and bf16 (one rounding at the end), so every
/// transport gives the same bits and every rank the same result.
///
/// `label` names the caller (a layer) for the watchdog and the trace; it is copied.
///
/// Errors: Error that names the operation, its label and the group: wrong arguments at once; calls
/// of two ranks that do not match, a rank that has returned, or a collective that hangs, when it is
/// seen. After abort(), every pending and later call and wait throws Aborted with the reason.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Whether what lies in a device's memory is exchanged by the device's streams alone, without the
  /// host: what Device::capture() takes in. The same for all groups of a world.
  virtual bool on_streams() const { return false; }

  /// data[i] becomes the sum (max, min) over ranks of data[i].
  virtual Work all_reduce(Buffer data, std::string_view label = {},
                          ReduceOp op = ReduceOp::sum) = 0;

  /// out (size · n) becomes the ranks' inp (n) in rank order. inp may be piece rank() of out.
  virtual Work all_gather(Buffer out, Buffer inp, std::string_view label = {}) = 0;

  /// out (n) becomes piece rank() of the sum over ranks of inp (size · n). out may be piece rank()
  /// of inp; the rest of inp is left as it is.
  virtual Work reduce_scatter(Buffer out, Buffer inp, std::string_view label = {}) = 0;

  /// data becomes root's data.
  virtual Work broadcast(Buffer data, int root, std::string_view label = {}) = 0;

  /// Piece r of out becomes piece rank() of rank r's inp; both are (size · n), and may be the same.
  virtual Work all_to_all(Buffer out, Buffer inp, std::string_view label = {}) = 0;

  /// Point to point within the group; matched in the order of the calls.
  virtual Work send(Buffer data, int to, std::string_view label = {}) = 0;
  virtual Work recv(Buffer data, int from, std::string_view label = {}) = 0;

  /// Returns when every rank has called it.
  virtual void barrier(std::string_view label = {}) = 0;

  /// Whether all ranks are threads of this process.
  virtual bool in_one_process() const { return size() == 1; }

  /// Ranks with the same color form a new group, ordered by their rank here. Collective.
  virtual std::unique_ptr<Communicator> split(int color, std::string name) = 0;

  /// Ends the whole world: every pending and later Work of every group throws Aborted. The first
  /// reason wins. Never throws.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Why the world has ended; empty while it goes on. Any thread may ask.
  virtual std::string end_reason() const { return {}; }

  /// Ends the world too, for a watchdog after whose abort() this rank did not come back, and may
  /// never: where ranks are threads of one process, it hears of it (ThreadsOptions::on_hang). Any
  /// thread may call it.
  virtual void give_up(const std::string& reason) noexcept { abort(reason); }

  virtual const CommStats& stats() const = 0;

  /// Processor time that the transport's own thread of this rank has taken so far, for all groups;
  /// 0 where it has none.
  virtual double progress_seconds() const { return 0; }

  /// From now on, collectives and waits of this group, and of those split from it later, are noted
  /// there; it must outlive them. Null: no longer.
  virtual void set_trace(Trace* trace) = 0;

 protected:
  Communicator() = default;
};

}  // namespace axonn
