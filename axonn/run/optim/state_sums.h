#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/ranks/parallel/parameters.h"

namespace axonn {

/// A part of a group's update: elements of its piece, and where state in few bits has them.
struct StatePart {
  std::int64_t begin = 0, count = 0;
  std::int64_t stored = -1;  ///< in the buffers of SmallLayout; -1: all state is f32
  bool small = false;        ///< SmallLayout::Run::small
};

/// Checksums of what a rank holds of weights and of the optimizer's state. They are kept when an
/// update has written the bytes, and compared before the next update reads them:
///
///   bytes                                    compared
///   master weights, state, averages (P)      part by part of the update, while in the caches
///   compute copy (S), of frozen groups, too  after its last use in the step, before the update;
///                                            with the sums of the ranks that wrote it
///
/// A single bit that has flipped is set right when it is found (mend_bit.h), which take_mended()
/// tells.
/// They are of runs of a parameter (ops::WordSums), which costs 8 bytes for each 64 KiB, and with
/// data > 1 an all-gather over data of the sums of the compute copies after each update. A value
/// that ParameterGroup::set_values() sets is taken as right. For devices with the host's memory.
class StateSums {
 public:
  explicit StateSums(const Grid& grid) : grid_(grid) {}
  ~StateSums();
  StateSums(const StateSums&) = delete;
  StateSums& operator=(const StateSums&) = delete;

  /// A run [begin, end) of a buffer's elements that belongs to a parameter.
  struct Run {
    const ParameterSpec* of = nullptr;
    std::int64_t begin = 0, end = 0;
  };
  static std::vector<Run> runs_of(const std::vector<NamedSlice>& slices, std::int64_t divisor = 1);

  /// What of a buffer a StatePart means; all: nothing, as updates read it at any time.
  enum class Covers : std::uint8_t { piece, small, absmax, full, all };
  /// Adds the next group, with its compute and master copies; `master` is what messages call the
  /// latter.
  void add_group(ParameterGroup& group, const std::string& master);
  /// Adds a buffer of a group's state, (1, n) and contiguous; an empty one is left out.
  void add(std::size_t group, const std::string& kind, const Tensor& tensor, Covers covers,
           const std::vector<Run>& runs);
  void add_average(std::size_t group, const std::string& kind, const Tensor& tensor);
  /// Called once, when all is added.
  void allocate();

  /// Values are loaded now: the next begin_step() takes them as right.
  void forget() { kept_ = false; }
  /// As if the compute copies had not been published since the last update.
  void ignore_publishes();
  /// Keeps the sums of all values if there are none. Collective over data, as check_copies().
  void begin_step();
  /// Returns whether a copy differed, which what a step has computed may come from. Of copies that
  /// could not be set right, lost_copy() is the first, "the compute copy of ln_f.weight", and
  /// lost_for_good() the first whose owner, this rank, has no master copy of it; "": there is none.
  bool check_copies();
  const std::string& lost_copy() const { return lost_copy_; }
  const std::string& lost_for_good() const { return lost_for_good_; }
  /// The end of the part of an update that begins with element `at`; at most `end`.
  std::int64_t part_end(std::size_t group, std::int64_t at, std::int64_t end) const;
  /// Compares the sums of a part before its update, or computes them after it; without a part, of
  /// all state.
  void check(std::size_t group, const std::optional<StatePart>& part = {});
  void keep(std::size_t group, const std::optional<StatePart>& part = {});
  void check_average(std::size_t group);
  void keep_average(std::size_t group);
  /// Ends an update: returns the first bytes that differed before it and could not be set right,
  /// "exp_avg of ln_f.weight", or "". Starts the exchange of the new sums over data.
  std::string finish_update();
  /// Likewise between updates; copies that the next step makes anew are left to it. Reads all bytes
  /// once. Collective over data.
  std::string find_fault();
  /// The values that had a flipped bit since the last call, which is set right.
  std::vector<std::string> take_mended() { return std::exchange(mended_, {}); }

 private:
  /// Elements of one checksum: 64 KiB in f32.
  static constexpr std::int64_t kCell = 16384;
  /// Elements of a part of an update on a CPU: with two moments and the gradient 4 MiB, which stay
  /// in the caches. Parts of a quarter cost twice as much, as there are more calls.
  static constexpr std::int64_t kPart = 1 << 18;
  /// Rows of the table; after an update, kKept and the row behind it change places.
  static constexpr std::int64_t kBounds = 0, kFound = 1, kKept = 2, kRows = 4;

  struct Cell {
    std::int64_t begin = 0;  ///< element
    const ParameterSpec* of = nullptr;
  };
  struct Buffer {
    std::string kind;
    std::string group = {};
    Tensor tensor;
    Covers covers = Covers::all;
    std::vector<Cell> cells;
    std::int64_t column = 0;  ///< in the table
    /// Where the kept sums are in gathered_, of another rank's piece.
    std::optional<std::int64_t> gathered = {};

    View data() const { return tensor.raw_view(); }
  };
  struct Group {
    ParameterGroup* group = nullptr;
    Buffer weights = {};  ///< this rank's piece of the compute copy
    bool is_master = false;
    std::vector<std::pair<int, Buffer>> others = {};  ///< the pieces of other ranks of data
    std::vector<Buffer> state = {};
    std::optional<Buffer> average = {};
    std::int64_t published = 0;
  };

  static Buffer make(const std::string& kind, const Tensor& tensor, Covers covers,
                     const std::vector<Run>& runs, std::int64_t cut = 0);
  template <typename F>
  static void for_buffers(Group& of, const F& f);
  /// Computes sums into a row of the table; those of kFound are compared.
  void sum(const Buffer& buffer, std::int64_t begin, std::int64_t end, std::int64_t to);
  void sum(const Buffer& buffer, std::int64_t to);
  void sum_part(const Buffer& buffer, const StatePart& part, std::int64_t to);
  void sum_state(const Group& of, const std::optional<StatePart>& part, std::int64_t to);
  void gather();
  /// The first byte of a cell, or the end of the buffer.
  static std::int64_t byte_of(const Buffer& buffer, std::int64_t cell);
  void compare(const Buffer& buffer, std::int64_t cell);
  std::int64_t* row(std::int64_t of) { return table_.data() + of * columns_; }
  std::int64_t now() const { return kKept + now_; }
  std::int64_t next() const { return kKept + 1 - now_; }

  const Grid& grid_;
  std::vector<Group> groups_;
  std::int64_t sent_ = 0;  // columns of compute copies, the first of the table
  std::int64_t columns_ = 0;
  // In the host's memory, and computed apart from what traces and plans see of a step.
  std::unique_ptr<Backend> backend_;
  std::vector<std::int64_t> table_;     // (kRows, columns)
  std::vector<std::int64_t> gathered_;  // (ranks of data, sent_); empty if there is one rank
  Work gathering_;
  std::int64_t now_ = 0;
  bool kept_ = false;
  std::int64_t faults_ = 0;  // cells that differed
  std::string lost_, lost_copy_, lost_for_good_;
  std::vector<std::string> mended_;
};

/// The sums of one group, for StateViews.
struct GroupSums {
  StateSums* sums = nullptr;
  std::size_t group = 0;
};

}  // namespace axonn
