#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "axonn/foundation/grid/sequence_cut.h"
#include "axonn/ranks/parallel/context.h"
#include "axonn/ranks/parallel/recompute.h"

namespace axonn {

/// How a value lies on the grid: its rows are cut over `rows`, its columns over `cols`; on every
/// other axis it is the same. Columns cut over both x and y are heads: x's part is cut over y.
struct Placement {
  AxisSet rows;
  AxisSet cols;
  bool operator==(const Placement&) const = default;
};

/// The part of each sequence that a rank holds if several ranks share sequences: as many blocks of
/// kContextBlock rows as each of the others, in the order of their positions.
struct SequenceShare {
  /// Which keys of a sequence attention gets. The lengths do not tell: a halo and a run may
  /// together be as long as the sequence.
  enum class Keys : std::uint8_t {
    all,           ///< those of all positions
    halo_and_run,  ///< with ContextLayout::window those of the `halo` positions before the rank's
                   ///< run, which the rank before it has, then those of the run
  };

  std::int64_t whole = 0;  ///< T: positions of a sequence, on all ranks together
  Keys kind = Keys::all;
  std::int64_t keys = 0, halo = 0;  ///< positions, multiples of the block; halo: 0 with all keys
  /// The position of the first key; 0 with all keys. Negative on the first rank of a halo, where no
  /// row sees the keys before position 0.
  std::int64_t first_key = 0;
  std::vector<std::int32_t> numbers;  ///< of each block of rows here, its number in its sequence
  Tensor blocks;  ///< (1, R / block) i32: the same, or with a halo its number among the keys
  /// (1, B·T / block) i32: for each block of each sequence, its index among the sequence's blocks
  /// in the order of the ranks: rank · (T / ranks / block) + how many earlier ones the rank has.
  /// Empty with a halo.
  Tensor slots;

  bool has_halo() const { return kind == Keys::halo_and_run; }
};

/// The rows of a batch coordinate: `sequences` of `positions` tokens each, one after another. If
/// rows are cut over x or y as well, a rank holds a run of them.
struct Rows {
  std::int64_t sequences = 0, positions = 0;
  std::int64_t first = 0;  ///< number of the first sequence's first row among all of the training

  /// For sequences that hold several documents, or a part of one. They are (1, R) i32 of all rows,
  /// even if a rank holds only a run of them, or empty.
  Tensor position = {};  ///< each row's position; empty: row r has r % positions
  /// The first row of its sequence that each row sees; empty: 0. With a share that has a halo,
  /// counted from the first key.
  Tensor start = {};
  /// 0 for a row of padding, which counts in no loss, else 1; as position and start. Empty: all 1.
  Tensor counted = {};
  /// Each row's row of rotary tables (Rope) that depend on the length of its sequence, as position:
  /// its position, or that plus most_positions() in longer sequences. Empty: all sequences here
  /// have whole() rows, and no table depends on more.
  Tensor rotary = {};
  /// For sequences whose document has two branches, as two answers to one prompt: (1, 3·sequences)
  /// i32, ops::BranchCopies::branches. A row sees the rows that both begin with and its own branch;
  /// `position` goes on from the common rows in both. Empty: there are none.
  Tensor branches = {};
  std::int64_t reach = 0;  ///< all positions are less than this; 0: `positions`
  /// Set if ranks share sequences. Then `positions` is the number of those here, and `position` is
  /// set, too.
  std::shared_ptr<const SequenceShare> share = {};

  std::int64_t count() const { return sequences * positions; }
  /// Positions of a sequence, here and on the ranks that share it.
  std::int64_t whole() const { return share ? share->whole : positions; }
  std::int64_t most_positions() const { return reach > 0 ? reach : whole(); }
  /// The numbers of the rows among all of the training, as runs of consecutive ones: calls
  /// f(row, count, number) for rows [row, row + count) here, of which the first has that number.
  template <typename F>
  void for_each_run(F f) const {
    if (!share) return f(std::int64_t{0}, count(), first);
    const std::int64_t each = positions / kContextBlock;
    for (std::int64_t i = 0; i < std::ssize(share->numbers); ++i)
      f(i * kContextBlock, kContextBlock,
        first + i / each * share->whole + share->numbers[i] * kContextBlock);
  }
  /// The rows of sequences [begin, end).
  Rows part(std::int64_t begin, std::int64_t end) const;
};

/// Sums the gradient of a value until the value's own backward step takes it.
class Gradient {
 public:
  /// Keeps the first gradient as it is, and adds later ones in the order of the calls.
  void add(const Context& ctx, Tensor d);
  /// Adds d to columns [begin, begin + d.cols()) of the gradient of a value of this many columns.
  void add_columns(const Context& ctx, std::int64_t cols, std::int64_t begin, const Tensor& d);
  /// Moves the sum out. Throws if add() was not called.
  Tensor take();
  /// Moves the sum out, or returns an empty tensor: for kernels that add it themselves.
  Tensor take_if_any() { return std::exchange(sum_, Tensor()); }

 private:
  Tensor sum_;
};

/// A value that backward reads: kept, or made again when it is read first. Copies share a value
/// that is made again; it is freed with the last of them.
class Saved {
 public:
  Saved() = default;
  explicit Saved(Tensor kept) : kept_(std::move(kept)) {}
  /// Of the block with this label, whose parameters `make` may read.
  Saved(std::function<Tensor()> make, std::string_view block)
      : again_(std::make_shared<Again>(Again{std::move(make), {}, block})) {}

  const Tensor& get() const;
  /// Moves the value out if nothing else reads it, else copies it.
  Tensor take() const;
  /// Whether nothing else reads the value, so that it may be overwritten.
  bool unique() const;
  /// Whether it is made again, in the block with this label.
  bool made_in(std::string_view block) const { return again_ && again_->block == block; }

 private:
  struct Again {
    std::function<Tensor()> make;  // empty: done
    Tensor value;
    std::string_view block;
  };
  Tensor kept_;
  std::shared_ptr<Again> again_;
};

/// The input of GELU, saved for backward, and its gradient. The product that makes the gradient of
/// GELU's output may apply GELU's derivative itself, and then adds to this gradient.
struct GeluInput {
  Saved value;
  std::shared_ptr<Gradient> gradient;
};

/// Some rows of a value: a tensor, its placement, and its gradient if one is needed.
struct Chunk {
  Tensor value;
  Placement placement;
  Rows rows;
  std::shared_ptr<Gradient> gradient;
  /// (R, 2) f32: mean and sum of squared deviations of each row's columns on this rank, if a
  /// residual sum made them for the next norm; else empty.
  Tensor moments = {};
  GeluInput gelu_of = {};  ///< set if the value is GELU of another and a gradient is needed
  Saved again = {};        ///< set if its block makes the value again instead of keeping it
};

/// A value of a model: activations, in one or several chunks of their rows, so that one chunk's
/// collective overlaps the next one's compute. Model code does not see the chunks.
///
/// A chunk may be lazy: computed when it is first accessed. Operations on single chunks are lazy,
/// so that each chunk goes through all operations between two sums while the next chunk's sum is in
/// flight. Copies share their chunks.
class Var {
 public:
  using Make = std::function<Chunk()>;

  Var() = default;
  Var(std::initializer_list<Chunk> chunks) {
    for (const Chunk& chunk : chunks) push_back(chunk);
  }

  void push_back(Chunk chunk) { slots_.push_back(std::make_shared<Slot>(std::move(chunk))); }
  /// Adds a lazy chunk, computed by `make`, which is called at most once.
  void push_back_later(Make make) { slots_.push_back(std::make_shared<Slot>(std::move(make))); }

  /// Adds the chunks of another value, lazy ones as they are.
  void append(const Var& other) {
    slots_.insert(slots_.end(), other.slots_.begin(), other.slots_.end());
  }

  std::size_t size() const { return slots_.size(); }
  /// Throw Error if there is no such chunk, as in a value that no operation has made.
  const Chunk& operator[](std::size_t i) const { return slot(i)->get(); }
  const Chunk& front() const { return slot(0)->get(); }

  /// Computes the lazy chunks.
  void make() const {
    for (const auto& slot : slots_) slot->get();
  }
  /// Chunk i alone; does not compute it.
  Var part(std::size_t i) const;
  /// Computes the lazy chunks that are still referenced at the end of the current block, before its
  /// parameters are released: for operations that read them.
  void make_before_release(const Context& ctx) const;
  /// Moves the only chunk out if no other Var shares it, else copies it.
  Chunk take();
  /// The same chunks, which the code after their block cannot make again. Computes none.
  Var kept() const;

  /// For loops; each chunk is computed when the loop reaches it.
  struct Iterator {
    const Var* var;
    std::size_t i;
    const Chunk& operator*() const { return (*var)[i]; }
    Iterator& operator++() { return ++i, *this; }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  class Slot {
   public:
    explicit Slot(Chunk chunk) : chunk_(std::move(chunk)) {}
    explicit Slot(Make make) : make_(std::move(make)) {}
    Chunk& get() {
      if (make_) chunk_ = std::exchange(make_, nullptr)();
      return chunk_;
    }

   private:
    Chunk chunk_;
    Make make_;
  };
  const std::shared_ptr<Slot>& slot(std::size_t i) const {
    AXONN_CHECK(i < size(), "a value of ", size(), " chunks has no chunk ", i);
    return slots_[i];
  }

  std::vector<std::shared_ptr<Slot>> slots_;
};

/// Throws the error of an own layer again, with the name of the block that ctx is in.
[[noreturn]] void fail_in_block(const Context& ctx, const AccessError& error);

/// How each_later() goes through chunks.
struct Lazily {
  /// Start a chunk before the previous one is finished, so that its collective overlaps.
  bool ahead = false;
  /// The functions read parameters of their block: compute chunks before these are released.
  bool reads_parameters = false;
};

/// The context in which lazy chunk i is computed. The position on the tape for the steps that are
/// recorded then is taken now, so that backward does not depend on when the chunk is computed; it
/// is in lane i, so that chunks take turns in backward as well.
class LazyContext {
 public:
  LazyContext(const Context& ctx, std::size_t i)
      : ctx_(ctx), tape_(ctx.tape ? ctx.tape->lane(i).branch() : nullptr) {}
  Context get() const {
    Context here = ctx_;
    here.tape = tape_.get();
    return here;
  }

 private:
  Context ctx_;
  std::shared_ptr<Tape> tape_;
};

/// Computes a chunk of each_later() when it is first accessed.
template <typename Start, typename Finish>
struct LazyChunk {
  using Started = std::invoke_result_t<Start, const Context&, const Chunk&>;
  struct Part {
    Var inp;  // empty: finished
    std::optional<Started> started;
  };

  LazyContext context;
  std::shared_ptr<Part> part, next;  ///< next: null if no other chunk starts before this is done
  Start start;
  Finish finish;

  Chunk operator()() {
    const Context here = context.get();
    try {
      for (Part* wanted : {part.get(), next.get()})
        if (wanted && wanted->inp.size() > 0 && !wanted->started)
          wanted->started = start(here, wanted->inp.front());
      Var of = std::exchange(part->inp, Var());
      return finish(here, of.take(), *std::exchange(part->started, std::nullopt));
    } catch (const AccessError& error) {
      fail_in_block(here, error);
    }
  }
};

/// Lazily applies finish(ctx, chunk, start(ctx, chunk)) to each chunk of inp; start begins a
/// collective.
template <typename Start, typename Finish>
Var each_later(const Context& ctx, Var inp, Lazily how, Start start, Finish finish) {
  using Lazy = LazyChunk<Start, Finish>;
  std::vector<std::shared_ptr<typename Lazy::Part>> parts;
  for (std::size_t i = 0; i < inp.size(); ++i)
    parts.push_back(std::make_shared<typename Lazy::Part>(typename Lazy::Part{inp.part(i), {}}));
  inp = {};  // if the caller moved inp in, each part is now the only owner of its chunk
  Var outs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto next = how.ahead && i + 1 < parts.size() ? parts[i + 1] : nullptr;
    outs.push_back_later(Lazy{LazyContext(ctx, i), parts[i], next, start, finish});
  }
  if (how.reads_parameters) outs.make_before_release(ctx);
  return outs;
}

/// Lazily applies f(ctx, chunk) to each chunk of inp.
template <typename F>
Var each_later(const Context& ctx, Var inp, F f, Lazily how = {}) {
  return each_later(
      ctx, std::move(inp), how, [](const Context&, const Chunk&) { return true; },
      [f](const Context& here, Chunk chunk, bool) { return f(here, std::move(chunk)); });
}

/// Lazily applies f(ctx, chunks) to the chunks of several values that cover the same rows. Throws
/// Error with the operation's name if they have different numbers of chunks.
template <typename F>
Var each_of(const Context& context, std::string_view name, const std::vector<Var>& values, F f) {
  for (const Var& value : values)
    AXONN_CHECK(value.size() == values[0].size(), name, ": ", values[0].size(), " and ",
                value.size(), " chunks");
  Var outs;
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    std::vector<Var> parts;
    for (const Var& value : values) parts.push_back(value.part(i));
    outs.push_back_later([lazy = LazyContext(context, i), parts, f] {
      const Context ctx = lazy.get();
      std::vector<Chunk> chunks;
      for (const Var& part : parts) chunks.push_back(part.front());
      return f(ctx, chunks);
    });
  }
  return outs;
}

/// The chunk that an operation returns: with the rows of `from`, and a gradient if ctx has a tape
/// and `from` has a gradient. A layer with parameters that are trained also calls need_gradient().
/// An operation whose result has no gradient records nothing.
Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement);
/// Gives a chunk a gradient if ctx has a tape and the chunk has none.
void need_gradient(const Context& ctx, Chunk& chunk);

/// Sets chunk.again if the chunk has a gradient and its block makes values of this kind again.
/// `make` must read only parameters of the block and saved() values.
void let_remake(const Context& ctx, Chunk& chunk, Remade kind, std::function<Tensor()> make);

/// The chunk's value for a backward step, or for another value's `make`.
Saved saved(const Context& ctx, const Chunk& chunk);

/// Lets backward make the value of a chunk again, which is f(inp.value).
template <typename F>
void let_remake(const Context& ctx, Chunk& chunk, Remade kind, const Chunk& inp, F f) {
  let_remake(ctx, chunk, kind, [of = saved(ctx, inp), f] { return f(of.get()); });
}

/// A chunk for a backward step, which holds its value only if the block keeps it.
class SavedChunk {
 public:
  SavedChunk(const Context& ctx, const Chunk& chunk) : value_(saved(ctx, chunk)), rest_(chunk) {
    rest_.value = rest_.moments = {};
    rest_.again = {};
  }
  /// The chunk with its value.
  Chunk get() const {
    Chunk whole = rest_;
    whole.value = value_.get();
    return whole;
  }
  /// The chunk without its value.
  const Chunk& rest() const { return rest_; }
  const Saved& value() const { return value_; }

 private:
  Saved value_;
  Chunk rest_;
};

/// Records backward(d_out) if the chunk has a gradient, d_out. Returns the chunk.
template <typename Backward>
Chunk with_backward(const Context& ctx, Chunk out, Backward backward) {
  if (out.gradient)
    ctx.tape->record([ctx, gradient = out.gradient, backward = std::move(backward)] {
      try {
        backward(gradient->take());
      } catch (const AccessError& error) {
        fail_in_block(ctx, error);
      }
    });
  return out;
}

/// How a value is cut over one axis on which it would otherwise be the same.
enum class Cut {
  same,     ///< not cut: each rank has all of it
  rows,     ///< coordinate i of G has the i-th of G equal runs of rows
  columns,  ///< coordinate i of G has the i-th of G equal parts of each run of columns: heads
};

/// Widths of the consecutive runs of columns of a value, such as q, k and v on a rank.
using Runs = std::vector<std::int64_t>;

Cut cut_over(const Placement& placement, Axis axis);

/// Cut::rows with RunSettings::sequence_parallel if the axis divides `rows`, else Cut::same.
Cut row_cut(const Context& ctx, std::int64_t rows, Axis axis);

/// Starts the sum over `axis` of a value that is partial on it, and leaves this rank's part of it,
/// cut as `cut` says, in value: an all-reduce, or a reduce-scatter, of value.count() elements. The
/// Work is pending in the tensor, and its first reader waits. `runs`, only used for Cut::columns,
/// add up to the columns of value.
void sum_over(const Context& ctx, Tensor& value, Axis axis, Cut cut, const Runs& runs);

/// The all-gather of a value that is cut over `axis`; starts in the constructor. If the axis has
/// one rank or nothing is cut, the result is the value itself.
class Gather {
 public:
  Gather(const Context& ctx, const Tensor& piece, Axis axis, Cut cut);

  void wait() const { gathered_.wait(); }
  /// The gathered value; may still be pending. `runs`: of its columns, for Cut::columns.
  Tensor whole(const Context& ctx, const Runs& runs) const;

 private:
  int ways_;
  Cut cut_;
  Tensor gathered_;  // Cut::columns: the pieces stacked, (G · R, columns / G)
};

/// This rank's part of of_all, a vector (1, R) with an element for each row of the chunk on all
/// ranks; empty if of_all is.
View of_rows_here(const Context& ctx, const Chunk& chunk, const Tensor& of_all);

/// Gathers the rows of a chunk if they are cut over `axis`; may still be pending.
Tensor whole_rows(const Context& ctx, const Chunk& chunk, Axis axis);

}  // namespace axonn
