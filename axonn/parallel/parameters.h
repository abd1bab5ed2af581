#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/parallel/context.h"
#include "axonn/parallel/layout.h"

namespace axonn {

class ParameterGroup;

/// What a parameter is, the same on every rank and every grid.
struct ParameterSpec {
  std::string name;  ///< global, as Hugging Face names it
  Layout layout;
  double init_mean = 0;
  double init_std = 0;  ///< element i of name starts at mean + std · normal(seed, name, i)
  bool decays = false;  ///< weight decay applies: matrices, not biases and norms
};

/// One parameter of a group: how operations reach its block.
class Parameter {
 public:
  Parameter(ParameterGroup& group, ParameterSpec spec) : group_(group), spec_(std::move(spec)) {}

  const ParameterSpec& spec() const { return spec_; }
  std::int64_t local_rows() const { return local_rows_; }
  std::int64_t local_cols() const { return local_cols_; }

  /// (local_rows, local_cols) in the compute type; vectors as (1, n). The group must be acquired.
  View weight() const;
  /// The same, f32: what operations add this micro-batch's gradient to. Cleared before the first.
  View gradient(const Context& ctx) const;
  /// For an operation that makes a summand of every element: whether there is anything to add it
  /// to. The first need neither clear nor read what it overwrites.
  struct Sum {
    View out;
    bool accumulate;
  };
  Sum gradient_of_all() const;
  /// Where the block begins in the group's flat buffer.
  std::int64_t offset() const { return offset_; }
  /// Whether it begins where the parameter declared before it ends.
  bool follows() const { return follows_; }
  /// Whether it has no gradient: see ParameterGroup::freeze().
  bool frozen() const;

 private:
  friend class ParameterGroup;
  View block_of(const View& flat) const;
  View gradient_block() const;
  std::int64_t size() const { return local_rows_ * local_cols_; }

  ParameterGroup& group_;
  ParameterSpec spec_;
  std::int64_t local_rows_ = 0, local_cols_ = 0, offset_ = 0;
  bool follows_ = false;
  mutable bool added_to_ = false;  // the group's buffer holds something of the gradient
};

/// A slice of a named parameter.
struct NamedSlice {
  const ParameterSpec* parameter = nullptr;
  Slice slice;
};

/// Remembers in which order groups were acquired, and on later passes gathers the next one while
/// the one before it computes. One for each kind of pass.
class Prefetcher {
 public:
  void begin_pass();
  /// The group that will be wanted after this one, or nullptr while that is not known.
  ParameterGroup* after(ParameterGroup& group);

 private:
  std::vector<ParameterGroup*> order_;
  std::size_t position_ = 0;
  bool known_ = false;
};

/// Elements of a group's flat buffers on one rank; F, S and P as ParameterGroup has them.
struct FlatSizes {
  std::vector<std::int64_t> offsets;  ///< of each parameter's block in F, in the order of add()
  std::int64_t decayed = 0;           ///< the first elements of F: weight decay applies to them
  std::int64_t flat = 0;              ///< F
  std::int64_t shard = 0;             ///< S
  std::int64_t piece = 0;             ///< P
};

/// A block's parameters in flat buffers, one of each kind.
///
///   F  the flat block: this rank's (x, y) blocks of all parameters, each beginning on 64 bytes
///      (joined ones without a gap), those that decay first, padded to Gz · Gd · 64 bytes
///   S  = F / Gz: the shard that this z coordinate keeps     (compute type, and gradient in f32)
///   P  = S / Gd: the piece that this data coordinate updates        (master copy and moments, f32)
///
///   kind         kept     while the block computes
///   compute copy S        F, gathered over z
///   gradient     S, f32   F, f32; its sum over z is added to the shard
///   master       P, f32   (is part of the compute copy where that is f32)
///
/// A frozen group has its compute copy alone.
///
/// Communication: acquire() all-gathers F over z; reduce() reduce-scatters F over z; once a step
/// reduce_over_data() reduce-scatters S over data and publish() all-gathers it.
class ParameterGroup {
 public:
  ParameterGroup(std::string name, const Grid& grid);
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }

  /// Its parameters stay as they are: no gradient, no master copy, nothing for the optimizer.
  /// Errors: Error after allocate().
  void freeze();
  bool frozen() const { return frozen_; }

  /// Declares a parameter. Errors: UsageError if the grid cannot cut it; Error after allocate().
  Parameter& add(ParameterSpec spec);

  /// Declares parameters, alike but for name and rows, whose blocks lie one after another, and
  /// returns them as one of all their rows, which messages call `name`: for a product over all of
  /// them (QKV; gate and up). What goes through parameters() sees the parts alone.
  const Parameter& add_joined(std::string name, std::vector<ParameterSpec> parts);

  /// How large the buffers are. Takes no memory and asks no other rank, so that a run can be
  /// planned without its ranks: before allocate(), too.
  FlatSizes sizes() const;

  /// Lays the blocks out and takes memory for the compute copy, not yet initialised.
  void allocate(const Context& ctx);
  /// Gives every element its initial value. Errors: not allocated.
  void initialise(const Context& ctx, std::uint64_t seed);

  /// Gathers the compute copy, or joins the gather that was prefetched; each acquire() has its
  /// release(). ctx.prefetcher has the next group's gather started as well.
  void acquire(const Context& ctx);
  void release();
  /// Whether its parameters are at hand after release(), too: there is nothing to gather.
  bool stays() const { return grid_.extent(Axis::z) == 1; }

  /// One more reduce() will come in this micro-batch: a group may be used in several places.
  void expect_reduce() { ++expected_; }
  /// The first micro-batch of a step begins: whatever the gradient holds is of the last one.
  void begin_step(const Context& ctx);
  /// Backward through the block is about to begin (makes room for the gradient) and has ended
  /// (sends it on its way to its shard, once it has ended wherever the group is used).
  void begin_backward(const Context& ctx);
  void reduce(const Context& ctx);
  /// Waits for reduce(). If it was the step's last, the sum of the shard over data starts, under
  /// the backward of other blocks where ctx.overlap.data says so.
  void finish_reduce(const Context& ctx);
  /// Starts the sum of the shard over data unless it has begun; gradient() waits for it.
  void reduce_over_data(const Context& ctx);
  /// Spreads the updated pieces of the compute copy over data.
  void publish(const Context& ctx);

  /// Sets elements of this rank's piece from `offset` on: of the master copy, or of the compute
  /// copy of a frozen group. publish_values(), once all are set, makes them known.
  void set_values(const Context& ctx, std::int64_t offset, std::span<const float> values);
  /// The same where there is no master copy and nothing to round.
  void set_values(const Context& ctx, std::int64_t offset, std::span<const bf16> values);
  bool takes_bf16() const { return master_.empty(); }
  void publish_values(const Context& ctx);

  /// (1, P) views of this rank's piece. The master copy may be part of the compute copy, which a
  /// prefetch that nobody used may still be reading: master() waits for that. A frozen group has
  /// none in bf16.
  View master() const {
    gathered_.wait();
    return master_.view();
  }
  View piece_of_compute() const;
  View gradient() const;
  std::int64_t piece_size() const { return shard_size_ / grid_.extent(Axis::data); }
  /// Elements of the piece, from its start, that weight decay applies to.
  std::int64_t decayed() const;
  /// What of which parameter lies in the piece, offsets counted from its start.
  const std::vector<NamedSlice>& piece_slices() const { return piece_slices_; }
  /// The parts [begin, end) of the piece that this rank owns, merged.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& owned_ranges() const {
    return owned_ranges_;
  }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }

 private:
  friend class Parameter;
  void arrange();
  void find_gaps();
  void start_gather(const Context& ctx);
  void clear_unused(const Context& ctx);
  void add_arriving(const Context& ctx);
  void sum_shared(const Context& ctx, const Tensor& flat);

  std::string name_;
  const Grid& grid_;
  bool frozen_ = false;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  struct Joined {
    std::unique_ptr<Parameter> whole;
    const Parameter* first;
  };
  std::vector<Joined> joined_;
  std::int64_t flat_size_ = 0, shard_size_ = 0, decayed_ = 0;
  std::vector<const Parameter*> operands_;  // what operations see: joined ones as one
  std::vector<std::pair<std::int64_t, std::int64_t>> gaps_;  // [begin, end) of F between them
  std::vector<NamedSlice> piece_slices_;
  std::vector<std::pair<std::int64_t, std::int64_t>> owned_ranges_;

  Tensor compute_;         // (1, S)
  Tensor master_;          // (1, P), a part of compute_ in f32
  Tensor gathered_;        // (1, F) while acquired
  Tensor gradient_;        // (1, F) f32 during backward; is shard_gradient_ where Gz is 1
  Tensor shard_gradient_;  // (1, S) f32
  Tensor arriving_;        // (1, S) a later micro-batch's, under way
  int users_ = 0;
  int expected_ = 0;        // reduces that this micro-batch's backward still has to make
  bool over_data_ = false;  // the sum over data has begun
  bool fresh_ = true;       // the shard's gradient holds nothing of this step yet
};

}  // namespace axonn
