#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/ranks/parallel/context.h"
#include "axonn/ranks/parallel/flat_layout.h"

namespace axonn {

class ParameterGroup;

/// Reads the elements of a slice of a parameter, whose offset does not count.
using ReadSlice =
    std::function<void(const ParameterSpec&, const Slice&, std::span<float> elements)>;

/// Reads records of a quantized parameter, of the largest unit of its kind, from block `first` of
/// the parameter on. False: its file has none, but values.
using ReadRecords =
    std::function<bool(const ParameterSpec&, std::int64_t first, std::span<std::byte> records)>;

/// One parameter of a group; gives operations views of this rank's block of it.
class Parameter {
 public:
  Parameter(ParameterGroup& group, ParameterSpec spec);

  const ParameterSpec& spec() const { return spec_; }
  std::int64_t local_rows() const { return local_rows_; }
  std::int64_t local_cols() const { return local_cols_; }
  /// Columns of the values that this rank multiplies with it: local_cols(), or more if the layout
  /// has a col_unit. Those behind the first local_cols(), which the product reads, are zero.
  std::int64_t input_cols() const { return spec_.layout.local_cols(grid_shape()); }
  View columns_read(const View& inp) const { return inp.col_range(0, local_cols_); }
  /// A value (rows, input_cols()) for a product to write the columns_read() of; others are zero.
  Tensor empty_input(const Context& ctx, std::int64_t rows) const {
    const std::int64_t cols = input_cols();
    return local_cols_ == cols ? ctx.empty(rows, cols, ctx.dtype)
                               : ctx.zeros(rows, cols, ctx.dtype);
  }

  /// (local_rows, local_cols) in the compute type; vectors as (1, n). The group must be acquired.
  View weight() const;
  /// The codes of the block, whose rows are whole records; nothing if the group has no codes, or
  /// values already, or if a record reaches over rows. As weight(), only while it is acquired.
  struct Codes {
    View records;  ///< (1, form.bytes(local_rows · local_cols)) u8
    QuantizedForm form;
  };
  std::optional<Codes> codes() const;
  /// The product (rows of inp, local_rows) with the weight transposed as codes, which needs no
  /// values; nothing without codes(), or if the backend reads none in this product.
  std::optional<QuantizedMatmul> product_of_codes(const Context& ctx, const View& out,
                                                  const View& inp, const View& bias) const;
  /// The same in f32, for operations to add this micro-batch's gradient to. The first call zeroes
  /// it.
  View gradient(const Context& ctx) const;
  /// The gradient for an operation that writes every element. The first such operation overwrites
  /// (accumulate is false), so nothing is zeroed or read.
  struct Sum {
    View out;
    bool accumulate;
  };
  Sum gradient_of_all() const;
  /// Where the block begins in the group's flat buffer.
  std::int64_t offset() const { return offset_; }
  /// Whether its block begins where that of the parameter declared before it ends (add_joined).
  bool follows() const { return follows_; }
  /// Whether it has no gradient: see ParameterGroup::freeze().
  bool frozen() const;

 private:
  friend class ParameterGroup;
  const GridShape& grid_shape() const;
  View block_of(const View& flat) const;
  View gradient_block() const;
  std::int64_t size() const { return local_rows_ * local_cols_; }

  ParameterGroup& group_;
  ParameterSpec spec_;
  std::int64_t local_rows_, local_cols_, offset_ = 0;
  bool follows_ = false;
  mutable bool added_to_ = false;  // the group's buffer holds a summand of the gradient
};

/// A block's parameters in flat buffers, one of each kind. FlatLayout says where they lie: in the
/// flat block F, of which this rank keeps the shard S over z (the group of the holders) and updates
/// the piece P over data.
///
///   kind         kept     while the block computes
///   compute copy S        F, gathered over z
///   gradient     S, f32   F, f32; its sum over z is added to the shard
///   master       P, f32   (part of the compute copy if that is f32)
///
/// A frozen group has only its compute copy. Of a quantized one S is kept as codes and factors
/// (QuantizedForm), which are gathered over z; F is made of them when weight() is first called in a
/// pass, and not at all if all products read codes. Blocks are those of the global matrix, so every
/// grid has the same values.
///
/// Communication: acquire() all-gathers F over z; reduce() reduce-scatters F over z; once a step
/// reduce_over_data() reduce-scatters S over data and publish() all-gathers it.
class ParameterGroup {
 public:
  ParameterGroup(std::string name, const Grid& grid, Holders holders = Holders::all_of_z);
  ParameterGroup(const ParameterGroup&) = delete;
  ParameterGroup& operator=(const ParameterGroup&) = delete;

  const std::string& name() const { return name_; }
  const Grid& grid() const { return grid_; }

  /// Excludes the parameters from training: no gradient, no master copy, no optimizer state.
  /// Throws after allocate().
  void freeze();
  bool frozen() const { return frozen_; }

  /// Freezes the group and keeps its parameters, all of them matrices, as codes. Throws after
  /// add().
  void quantize(Quantization kind);
  Quantization quantization() const { return form_.kind; }

  /// Sets the factor of the learning rate for the parameters with weight decay: 1 / m with muP.
  void set_rate(double rate) { rate_ = rate; }
  double rate() const { return rate_; }

  /// From now on parameters that `takes` accepts are declared in `other`, unless they are in the
  /// group of an earlier call.
  void divert(ParameterGroup& other, std::function<bool(const ParameterSpec&)> takes);

  /// Declares a parameter. Throws UsageError if the grid cannot cut it, Error if it has no name or
  /// no elements, or after allocate().
  Parameter& add(ParameterSpec spec);

  /// Declares parameters that differ only in name and rows, places their blocks one after another,
  /// and returns a parameter of all their rows, called `name` in messages: for one product over all
  /// of them (QKV; gate and up). parameters() lists only the parts. Throws UsageError if only some
  /// are diverted.
  const Parameter& add_joined(std::string name, std::vector<ParameterSpec> parts);
  /// The same where parts may be kept as codes of several kinds: a parameter for each run of parts
  /// that are kept alike, in order. Throws UsageError if only some are diverted to trained groups.
  std::vector<const Parameter*> add_runs(const std::string& name, std::vector<ParameterSpec> parts);

  /// Where the parameters lie, also before allocate().
  const FlatLayout& layout() const { return layout_; }
  /// The sizes of this rank's buffers, also before allocate().
  FlatSizes sizes() const { return layout_.sizes(grid_.coords()); }
  /// The bytes of the shard S of compute copies of `dtype`, or of codes; also before allocate().
  std::int64_t shard_bytes(DType dtype) const;

  /// Lays out the blocks and allocates the compute and master copies, not yet initialised.
  void allocate(const Context& ctx);
  /// Gives every element its initial value. Throws before allocate().
  void initialise(const Context& ctx, std::uint64_t seed);
  /// Whether the elements have values: initial ones, or those that publish_values() completed.
  bool has_values() const { return has_values_; }

  /// Gathers the compute copy, or uses a gather that was prefetched. Each acquire() needs its
  /// release(). With a StepState, also starts the next group's gather. Throws Error, with the
  /// remedy, without has_values() on a device that keeps values.
  void acquire(const Context& ctx);
  /// After the last release() the gathered copy is freed, or kept for later passes until it is
  /// released otherwise or the parameters change.
  enum class Gathered : std::uint8_t { freed, kept };
  void release(Gathered then = Gathered::freed);
  /// Keeps the gathered values until let_go(); of a quantized group whose codes the backend reads,
  /// the gathered codes, so that passes with many rows still make and free values.
  void hold(const Context& ctx);
  void let_go(Gathered then = Gathered::freed);
  /// Whether the parameters stay available after release(), because z has extent 1 and they are
  /// neither quantized nor offloaded.
  bool stays() const { return holders().size() == 1 && !quantized() && !compute_.in_file(); }

  /// Announces one more reduce() in this micro-batch: a group may be used in several places.
  void expect_reduce() { ++expected_; }
  /// Begins a step: its first gradient replaces the previous step's.
  void begin_step(const Context& ctx);
  /// Allocates the gradient; called before backward through the block.
  void begin_backward(const Context& ctx);
  /// Called after backward through the block. The last call that was expected starts the
  /// reduce-scatter of the gradient to its shard.
  void reduce(const Context& ctx);
  /// Waits for reduce(). If it was the step's last and Overlap::data is set, starts the sum of
  /// the shard over data, which overlaps the backward of other blocks.
  void finish_reduce(const Context& ctx);
  /// Starts the sum of the shard over data unless it has begun; gradient() waits for it.
  void reduce_over_data(const Context& ctx);
  /// All-gathers the updated pieces of the compute copy over data.
  void publish(const Context& ctx);

  /// Sets elements of this rank's piece from `offset` on: of the master copy, or of the compute
  /// copy of a frozen bf16 or f16 group. Call publish_values() when all are set.
  void set_values(const Context& ctx, std::int64_t offset, std::span<const float> values);
  /// The same of values of `dtype`, without rounding. Throws unless takes(dtype): a group without a
  /// master copy takes the type of its compute copy.
  void set_values(const Context& ctx, std::int64_t offset, DType dtype,
                  std::span<const std::byte> values);
  bool takes(DType dtype) const { return master_.empty() && compute_.dtype() == dtype; }
  /// Sets this rank's piece of the elements of a parameter's block (local_rows · local_cols).
  void set_block(const Context& ctx, const Parameter& parameter, std::span<const float> values);
  /// Sets this rank's piece of a quantized group: where its records are whole blocks, from those
  /// that `records` gives, if any, else from the values that `read` gives, of whole blocks that the
  /// piece has a part of. Throws UsageError, with the parameter, for a value that has no code, and
  /// what these throw. Call publish_values() then.
  void quantize_values(const Context& ctx, const ReadSlice& read, const ReadRecords& records = {});
  void publish_values(const Context& ctx);
  /// How often that was called.
  std::int64_t publishes() const { return publishes_; }
  /// Calls f(begin, count) after set_values() of elements of the master copy; or nothing.
  using OnSet = std::function<void(std::int64_t begin, std::int64_t count)>;
  void on_set(OnSet f) { on_set_ = std::move(f); }

  /// (1, P) views of this rank's piece. The master copy may be part of the compute copy, which an
  /// unused prefetch may still be reading: master() waits for that. A frozen bf16 or f16 group
  /// has no master copy. Throws Error before allocate().
  View master() const {
    check_allocated("master");
    gathered_.wait();
    return master_.view();
  }
  /// (1, S), the compute copy: the same bits on all ranks of data; and this rank's piece (1, P) of
  /// it; records of codes, u8, if the group is quantized. Both throw Error before allocate().
  View shard() const {
    check_allocated("shard");
    return compute_.view();
  }
  /// The tensors of shard() and master(), for those that ask where they lie (Tensor::in_file).
  const Tensor& compute_copy() const { return compute_; }
  const Tensor& master_copy() const { return master_; }
  View piece_of_compute() const { return piece_of(shard()); }
  /// Throws Error if the group is frozen or no step was begun.
  View gradient() const;
  /// What the arena may offload: this rank's piece (1, P) of the compute copy, of the master copy
  /// and of the gradient, as far as there are such.
  std::vector<Tensor> pieces() const;
  /// Lets all of these, of the whole shard, go to their file.
  void put_away() const;
  InMemory bring_gradient(FileAccess access) const { return {{shard_gradient_}, access}; }
  std::int64_t piece_size() const { return sizes_.piece; }
  /// Leading elements of the piece to which weight decay applies.
  std::int64_t decayed() const;
  /// The slices of parameters in the piece, with offsets counted from its start.
  const std::vector<NamedSlice>& piece_slices() const { return piece_slices_; }
  /// The parts of the piece that this rank owns, merged.
  const Ranges& owned_ranges() const { return owned_ranges_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }

 private:
  friend class Parameter;
  Parameter& declare(ParameterSpec spec, bool follows);
  ParameterGroup* diverted_to(const ParameterSpec& spec) const;
  bool quantized() const { return form_.kind != Quantization::none; }
  /// The elements of `count` values as the compute copy has them.
  std::int64_t stored(std::int64_t count) const { return quantized() ? form_.bytes(count) : count; }
  std::int64_t unit_of(const Parameter& parameter, std::int64_t offset) const;
  QuantizedForm form_on(const FlatSizes& sizes) const;
  void quantize_slice(const Context& ctx, const NamedSlice& piece, const ReadSlice& read,
                      const ReadRecords& read_records);
  View values() const;
  bool reads_codes(const Context& ctx) const;
  void check_allocated(const char* function) const {
    AXONN_CHECK(!compute_.empty(), name_, ": ", function, "() before allocate()");
  }
  void arrange();
  Communicator& holders() const {
    return holders_ == Holders::all_of_z ? grid_.along(Axis::z) : grid_.same_experts();
  }
  /// This rank's piece of a View or Tensor (1, S).
  template <typename Shard>
  Shard piece_of(const Shard& shard) const {
    const std::int64_t piece = stored(sizes_.piece);
    return shard.col_range(grid_.coord(Axis::data) * piece, piece);
  }
  void start_gather(const Context& ctx);
  void forget_gathered();
  void clear_unused(const Context& ctx);
  void add_arriving(const Context& ctx);
  void sum_shared(const Context& ctx, const Tensor& flat);

  std::string name_;
  const Grid& grid_;
  const Holders holders_;
  bool frozen_ = false;
  double rate_ = 1;
  QuantizedForm form_;
  struct Diversion {
    ParameterGroup* to;
    std::function<bool(const ParameterSpec&)> takes;
  };
  std::vector<Diversion> diversions_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  struct Joined {
    std::unique_ptr<Parameter> whole;
    const Parameter* first;
  };
  std::vector<Joined> joined_;
  std::vector<const Parameter*> operands_;  // parameters as operations see them: joined ones as one
  FlatLayout layout_;
  // Of this rank; set by allocate().
  FlatSizes sizes_;
  Ranges gaps_, owned_ranges_;
  std::vector<NamedSlice> piece_slices_;

  Tensor compute_;                 // (1, S), or its codes
  Tensor master_;                  // (1, P), a part of compute_ in f32
  mutable Tensor gathered_;        // (1, F) while acquired; of codes, once values() was called
  mutable Tensor records_;         // the codes of F, until gathered_ is made of them, or while held
  std::optional<Context> reader_;  // of a quantized group: of the last acquire()
  int records_held_ = 0;           // hold() calls of codes
  Tensor gradient_;                // (1, F) f32 during backward; is shard_gradient_ where Gz is 1
  Tensor shard_gradient_;          // (1, S) f32
  Tensor arriving_;                // (1, S) of a later micro-batch, in flight
  // Of offloaded groups: of compute_ while it or what is gathered of it is read, and of the shard's
  // gradient during backward.
  InMemory in_memory_, gradient_in_memory_;
  bool has_values_ = false;
  std::int64_t publishes_ = 0;
  OnSet on_set_;
  int users_ = 0;
  int expected_ = 0;        // reduce() calls still to come in this micro-batch's backward
  bool over_data_ = false;  // the sum over data has begun
  bool fresh_ = true;       // the shard's gradient holds nothing of this step yet
};

/// Completes the gradients at the end of a step's backward; then gradient() of each group is final.
/// Starts the sums over data that have not begun, and sums gradients that are partial on x or y
/// (Layout::partial): one all-reduce per axis for all groups, of those elements of this rank's
/// pieces.
void finish_gradients(const Context& ctx, std::span<ParameterGroup* const> groups);

}  // namespace axonn
