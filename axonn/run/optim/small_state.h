#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/run/optim/optimizer.h"

namespace axonn {

/// A run of elements of a group's piece. Weight decay applies to the first `decayed` of them.
struct UpdateRange {
  std::int64_t begin = 0, count = 0, decayed = 0;
  double rate = 1;  ///< factor of the learning rate, but not of what weight decay takes in a step
};

/// Where the state of a group lies that optimizer.moments keeps in few bits, on one rank: slice
/// after slice, each from a multiple of DynamicMap::kBlock elements on. Blocks of 8-bit codes are
/// those of the rank's slices: on one rank of the matrix, row after row.
///
/// With 8bit, vectors and matrices of less than kLeast elements stay in f32, and lie likewise in a
/// buffer of their own. What lies between slices has no state.
class SmallLayout {
 public:
  static constexpr std::int64_t kLeast = 4096;  ///< elements of a matrix, as in bitsandbytes

  /// Of the rank at these coordinates. The group must outlive it; all its parameters are declared.
  SmallLayout(const ParameterGroup& group, MomentType type, const Coords& at);

  struct Run {
    const ParameterSpec* spec = nullptr;
    Slice slice;             ///< its offset counts in the piece
    bool small = false;      ///< whether it is kept in few bits
    std::int64_t begin = 0;  ///< in the buffer of its kind
    std::int64_t end() const { return slice.offset + slice.count(); }
  };
  const std::vector<Run>& runs() const { return runs_; }
  /// The same, with offsets in the buffers of few bits, or in those of f32.
  const std::vector<NamedSlice>& slices(bool small) const { return slices_[small ? 1 : 0]; }
  /// Elements of a buffer.
  std::int64_t count(bool small) const { return count_[small ? 1 : 0]; }
  /// Bytes of the buffers of one of the rule's states, and of what a checkpoint has of them.
  std::int64_t bytes() const { return bytes_of(count_[1], count_[0]); }
  std::int64_t stored_bytes() const;

 private:
  std::int64_t bytes_of(std::int64_t small, std::int64_t full) const;

  MomentType type_;
  std::vector<Run> runs_;
  std::array<std::vector<NamedSlice>, 2> slices_;
  std::array<std::int64_t, 2> count_ = {};
};

/// The state of one group in few bits. An update reads it, and writes it back, a part at a time.
class SmallState {
 public:
  /// Allocates it, and sets it to zero. The signs are those of Optimizer::state_signs().
  SmallState(const Context& ctx, const ParameterGroup& group, MomentType type,
             const std::vector<StateSign>& signs);

  const SmallLayout& layout() const { return layout_; }
  MomentType type() const { return type_; }

  /// Buffers of the i-th state: bf16 or codes (1, count(true)), the absmax of their blocks, and f32
  /// (1, count(false)). Empty where there is nothing.
  struct Buffers {
    StateSign sign = StateSign::any;
    Tensor small, absmax, full;
  };
  const Buffers& operator[](std::size_t i) const { return buffers_[i]; }
  std::size_t size() const { return buffers_.size(); }

  /// From now on, rounds with the random numbers of this update.
  void begin(std::uint64_t seed, std::int64_t step);

  /// Calls f(part, views) for parts that make up a range, but for what lies between slices. The
  /// views are the first `count` states of the part in f32, (1, part.count) each; what f writes
  /// there is kept. Holds kAtOnce elements of each in further memory.
  static constexpr std::int64_t kAtOnce = 1 << 20;
  using TakePart = std::function<void(const UpdateRange& part, Views states)>;
  void for_parts(const Context& ctx, const UpdateRange& range, std::size_t count, const TakePart& f,
                 const StateViews& state = {}) const;

  /// The buffers that may be in a file, and parts of them for kAtOnce elements.
  std::vector<Tensor> buffers() const;
  std::vector<Tensor> parts_at_once() const;

  /// Sets the i-th state, of layout().count(true) elements, to values in f32 of the host. absmax is
  /// that of each value's block where it comes from, or 0 where there is none: a block whose values
  /// come from one block keeps its codes.
  void set(const Context& ctx, std::size_t i, std::span<const float> values,
           std::span<const float> absmax) const;

 private:
  ops::DynamicBlocks blocks(std::size_t i, std::int64_t at, std::int64_t count) const;
  void read(const Context& ctx, std::size_t i, const View& out, std::int64_t at) const;
  void write(const Context& ctx, std::size_t i, const View& values, std::int64_t at,
             const SmallLayout::Run& run) const;
  void put_away(std::int64_t at, std::int64_t count, bool small) const;

  MomentType type_;
  SmallLayout layout_;
  std::vector<Buffers> buffers_;
  std::array<Tensor, 2> tables_;  // by StateSign, of 8bit
  std::uint64_t seed_ = 0;
  std::int64_t step_ = 0;
};

/// Calls f(part, states) for parts of a group's piece that make up a range: for all of it if the
/// state is f32, else as SmallState::for_parts() does. For rules with Optimizer::state_signs().
/// With StateViews::sums(), in smaller parts, whose checksums are computed before and after f; with
/// StateViews::offloaded(), in parts of at most kAtOnce elements, which are then put away.
void for_parts(const Context& ctx, const StateViews& state, const UpdateRange& range,
               std::size_t count, const SmallState::TakePart& f);

}  // namespace axonn
