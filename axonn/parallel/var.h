#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "axonn/parallel/context.h"

namespace axonn {

/// How a value lies on the grid: its rows are cut over `rows`, its columns over `cols`; on every
/// other axis it is the same. Cut over x and y, columns are heads: x's part is cut again over y.
struct Placement {
  AxisSet rows;
  AxisSet cols;
  bool operator==(const Placement&) const = default;
};

/// What the rows of a (z, data) coordinate mean: `sequences` one after another, of `positions`
/// tokens each. Where they are cut over x or y as well, a rank holds a run of them.
struct Rows {
  std::int64_t sequences = 0, positions = 0;
  std::int64_t first = 0;  ///< the number of the first row among all rows of the training

  /// Where a sequence holds several documents, or a part of one. All of the rows', also where a
  /// rank holds a run of them: (1, R) i32 each, or empty.
  Tensor position = {};    ///< each row's position; empty: row r has r % positions
  Tensor start = {};       ///< the first row of its sequence that each row sees; empty: 0
  std::int64_t reach = 0;  ///< all positions are below it; 0: `positions`

  std::int64_t count() const { return sequences * positions; }
  std::int64_t most_positions() const { return reach > 0 ? reach : positions; }
  /// Sequences [begin, end) of them.
  Rows part(std::int64_t begin, std::int64_t end) const;
};

/// Where the gradient of a value is summed until its own backward step takes it.
class Gradient {
 public:
  /// The first is kept as it is, later ones are added in the order of the calls.
  void add(const Context& ctx, Tensor d);
  /// Moves the sum out. Errors: nobody gave a gradient.
  Tensor take();
  /// The sum so far, moved out, or an empty tensor: for kernels that add it themselves.
  Tensor take_if_any() { return std::exchange(sum_, Tensor()); }

 private:
  Tensor sum_;
};

/// What a value is GELU of, kept for backward, and its gradient: the product that makes the value's
/// gradient may take it through GELU itself and give it to this one.
struct GeluInput {
  Tensor value;
  std::shared_ptr<Gradient> gradient;
};

/// Some rows of a value: one tensor, where it lies, and its gradient if one is needed.
struct Chunk {
  Tensor value;
  Placement placement;
  Rows rows;
  std::shared_ptr<Gradient> gradient;
  /// (R, 2) f32: mean and sum of squared deviations of each row of the value here, where a residual
  /// sum made them for the norm that comes next; or empty.
  Tensor moments = {};
  GeluInput gelu_of = {};  ///< where the value is GELU of another and a gradient is needed
};

/// A value of a model: activations, in one or several chunks of their rows, so that one chunk's
/// collective is under way while the next one computes; model code does not see it.
///
/// A chunk may be made only when somebody first looks at it, which is done for what needs no other
/// chunk: so between two products, each chunk goes from the sum behind the first to the second
/// while the next chunk's sum is under way. Copies share their chunks.
class Var {
 public:
  using Make = std::function<Chunk()>;

  Var() = default;
  Var(std::initializer_list<Chunk> chunks) {
    for (const Chunk& chunk : chunks) push_back(chunk);
  }

  void push_back(Chunk chunk) { slots_.push_back(std::make_shared<Slot>(std::move(chunk))); }
  /// A chunk to be made by `make`, which is called at most once.
  void push_back_later(Make make) { slots_.push_back(std::make_shared<Slot>(std::move(make))); }

  std::size_t size() const { return slots_.size(); }
  const Chunk& operator[](std::size_t i) const { return slots_[i]->get(); }
  const Chunk& front() const { return slots_.front()->get(); }

  /// Makes all chunks that are not made yet.
  void make() const {
    for (const auto& slot : slots_) slot->get();
  }
  /// Chunk i alone, not looked at.
  Var part(std::size_t i) const;
  /// Makes the chunks that are still wanted by somebody, and not made, when it is called: for
  /// operations that read parameters, at the end of their block.
  std::function<void()> maker() const;
  /// Moves the only chunk out where nobody else shares it, else copies it.
  Chunk take();

  class Iterator {
   public:
    Iterator(const Var& var, std::size_t i) : var_(&var), i_(i) {}
    const Chunk& operator*() const { return (*var_)[i_]; }
    Iterator& operator++() {
      ++i_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return i_ == other.i_; }

   private:
    const Var* var_;
    std::size_t i_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

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
  std::vector<std::shared_ptr<Slot>> slots_;
};

/// f(ctx) to be called when somebody first looks at chunk i, which it makes. What it records takes
/// its place on the tape now, so that backward does not depend on when that is, and on a lane of
/// the chunk's own, so that there, too, chunks take turns.
template <typename F>
Var::Make later(const Context& ctx, std::size_t i, F f) {
  const std::shared_ptr<Tape> tape = ctx.tape ? ctx.tape->lane(i).branch() : nullptr;
  return [ctx, tape, f = std::move(f)]() mutable {
    Context here = ctx;
    here.tape = tape.get();
    return f(here);
  };
}

/// f(ctx, chunk) of each chunk of inp, later. `reads_parameters` of the block that it is in.
template <typename F>
Var each_later(const Context& ctx, Var inp, F f, bool reads_parameters = false) {
  Var outs;
  std::vector<Var> parts;
  for (std::size_t i = 0; i < inp.size(); ++i) parts.push_back(inp.part(i));
  inp = {};  // from here on each chunk is its part's alone, if the caller gave it away
  for (std::size_t i = 0; i < parts.size(); ++i)
    outs.push_back_later(
        later(ctx, i, [part = std::move(parts[i]), f](const Context& here) mutable {
          return f(here, part.take());
        }));
  if (reads_parameters && ctx.before_release) ctx.before_release->push_back(outs.maker());
  return outs;
}

/// finish(ctx, chunk, start(ctx, chunk)) of each chunk of inp, later, where start begins a
/// collective. `ahead`: a chunk is started before the one before it is finished, so that its
/// collective is under way meanwhile. finish reads parameters of the block that it is in.
template <typename Start, typename Finish>
Var each_later_in_two(const Context& ctx, const Var& inp, bool ahead, Start start, Finish finish) {
  using Started = std::invoke_result_t<Start, const Context&, const Chunk&>;
  struct Part {
    Var inp;
    std::optional<Started> started;
  };
  std::vector<std::shared_ptr<Part>> parts;
  for (std::size_t i = 0; i < inp.size(); ++i)
    parts.push_back(std::make_shared<Part>(Part{inp.part(i), {}}));
  Var outs;
  for (std::size_t i = 0; i < inp.size(); ++i) {
    const auto next = ahead && i + 1 < inp.size() ? parts[i + 1] : nullptr;
    outs.push_back_later(later(ctx, i, [part = parts[i], next, start, finish](const Context& here) {
      for (Part* wanted : {part.get(), next.get()})
        if (wanted && wanted->inp.size() > 0 && !wanted->started)
          wanted->started = start(here, wanted->inp.front());
      const Var of = std::exchange(part->inp, Var());  // finished
      return finish(here, of.front(), *std::exchange(part->started, std::nullopt));
    }));
  }
  if (ctx.before_release) ctx.before_release->push_back(outs.maker());
  return outs;
}

/// The chunk that an operation returns: same rows, gradient if its input or a parameter needs one.
Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement);

}  // namespace axonn
