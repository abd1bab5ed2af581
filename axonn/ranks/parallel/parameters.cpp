#include "axonn/ranks/parallel/parameters.h"

#include <algorithm>

#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

Parameter::Parameter(ParameterGroup& group, ParameterSpec spec)
    : group_(group),
      spec_(std::move(spec)),
      local_rows_(rows_at(spec_.layout, group.grid_.shape(), group.grid_.coords())),
      local_cols_(spec_.layout.cols_at(group.grid_.shape(), group.grid_.coords())) {}

const GridShape& Parameter::grid_shape() const { return group_.grid_.shape(); }

View Parameter::block_of(const View& flat) const {
  View block = flat.col_range(offset_, local_rows_ * local_cols_);
  const bool vector = spec_.layout.cols == 1 && !spec_.decays;  // an adapter of rank 1 is a matrix
  block.rows = vector ? 1 : local_rows_;
  block.cols = block.stride = vector ? local_rows_ : local_cols_;
  return block;
}

View Parameter::weight() const {
  AXONN_CHECK(group_.users_ > 0 || !group_.gathered_.empty(), spec_.name,
              ": read while the weights of its block ", group_.name_,
              " are not gathered; see GatheredWeights");
  return block_of(group_.values());
}

View Parameter::gradient_block() const {
  AXONN_CHECK(!group_.gradient_.empty(), spec_.name,
              ": gradient used outside the backward pass of ", group_.name_,
              "; a loss computes it in the forward pass, with parameters held (ReadIn::held)");
  return block_of(group_.gradient_.raw_view());
}

bool Parameter::frozen() const { return group_.frozen(); }

View Parameter::gradient(const Context& ctx) const {
  const View block = gradient_block();
  if (!std::exchange(added_to_, true))
    ctx.device().fill_zero(block.data, size() * bytes_of(block.dtype));
  return block;
}

Parameter::Sum Parameter::gradient_of_all() const {
  return {gradient_block(), std::exchange(added_to_, true)};
}

ParameterGroup::ParameterGroup(std::string name, const Grid& grid, Holders holders)
    : name_(std::move(name)), grid_(grid), holders_(holders), layout_(grid.shape(), holders) {}

void ParameterGroup::freeze() {
  AXONN_CHECK(compute_.empty(), name_, ": frozen after allocate()");
  frozen_ = true;
}

Parameter& ParameterGroup::declare(ParameterSpec spec, bool follows) {
  AXONN_CHECK(compute_.empty(), name_, ": parameter ", spec.name, " declared after allocate()");
  AXONN_CHECK(!spec.name.empty() && spec.layout.rows > 0 && spec.layout.cols > 0, name_,
              ": the parameter '", spec.name, "' of ", spec.layout.rows, " x ", spec.layout.cols,
              " elements wants a name and at least one element");
  spec.layout.check(spec.name, grid_.shape());
  Parameter& added = *parameters_.emplace_back(std::make_unique<Parameter>(*this, std::move(spec)));
  added.follows_ = follows;
  layout_.add(added.spec(), follows);
  return added;
}

void ParameterGroup::divert(ParameterGroup& other,
                            std::function<bool(const ParameterSpec&)> takes) {
  diversions_.push_back({&other, std::move(takes)});
}

ParameterGroup* ParameterGroup::diverted_to(const ParameterSpec& spec) const {
  for (const Diversion& one : diversions_)
    if (one.takes(spec)) return one.to;
  return nullptr;
}

Parameter& ParameterGroup::add(ParameterSpec spec) {
  if (ParameterGroup* const other = diverted_to(spec)) return other->add(std::move(spec));
  Parameter& parameter = declare(std::move(spec), false);
  operands_.push_back(&parameter);
  return parameter;
}

const Parameter& ParameterGroup::add_joined(std::string name, std::vector<ParameterSpec> parts) {
  AXONN_CHECK(!parts.empty(), name, ": no parameters to join");
  ParameterGroup* const other = diverted_to(parts.front());
  if (std::ranges::any_of(parts, [&](const auto& part) { return diverted_to(part) != other; }))
    refuse(name, " is one product: train all of its parts whole, or none");
  if (other) return other->add_joined(std::move(name), std::move(parts));
  ParameterSpec all = parts.front();
  all.name = std::move(name);
  all.layout.rows = 0;
  all.layout.segments.clear();
  const Parameter* first = nullptr;
  for (ParameterSpec& part : parts) {
    AXONN_CHECK(part.decays == all.decays && part.layout.cols == all.layout.cols &&
                    part.layout.row_axis == all.layout.row_axis &&
                    part.layout.col_axis == all.layout.col_axis && part.layout.col_unit == 0 &&
                    part.layout.partial == all.layout.partial &&
                    part.layout.expert == all.layout.expert,
                part.name, ": cannot be joined in ", all.name,
                ": its layout or weight decay differs from the first part's");
    all.layout.rows += part.layout.rows;
    std::vector<Segment> segments = part.layout.segments;
    if (segments.empty()) segments = {{.rows = part.layout.rows}};
    std::ranges::copy(segments, std::back_inserter(all.layout.segments));
    Parameter& added = declare(std::move(part), first != nullptr);
    if (!first) first = &added;
  }
  joined_.push_back({std::make_unique<Parameter>(*this, std::move(all)), first});
  operands_.push_back(joined_.back().whole.get());
  return *operands_.back();
}

std::vector<const Parameter*> ParameterGroup::add_runs(const std::string& name,
                                                       std::vector<ParameterSpec> parts) {
  const auto trained = [&](const ParameterSpec& part) {
    const ParameterGroup* const other = diverted_to(part);
    return other && !other->quantized();
  };
  if (std::ranges::any_of(parts, trained)) return {&add_joined(name, std::move(parts))};
  std::vector<const Parameter*> all;
  for (std::size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && diverted_to(parts[end]) == diverted_to(parts[begin])) ++end;
    all.push_back(&add_joined(name, {parts.begin() + static_cast<std::ptrdiff_t>(begin),
                                     parts.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
  return all;
}

/// Says where the blocks lie.
void ParameterGroup::arrange() {
  sizes_ = sizes();
  form_ = form_on(sizes_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->offset_ = sizes_.offsets[i];
  for (const Joined& joined : joined_) joined.whole->offset_ = joined.first->offset_;
  std::ranges::sort(operands_, {}, &Parameter::offset_);
  gaps_ = layout_.gaps(grid_.coords(), sizes_);
  piece_slices_ = layout_.piece_slices(grid_.coords(), sizes_);
  owned_ranges_ = axonn::owned_ranges(piece_slices_);
}

void ParameterGroup::allocate(const Context& ctx) {
  AXONN_CHECK(compute_.empty(), name_, ": allocated twice");
  arrange();
  if (quantized()) {
    compute_ = ctx.long_lived(1, stored(sizes_.shard), DType::u8, MemoryUse::parameters);
    return;
  }
  compute_ = ctx.long_lived(1, sizes_.shard, ctx.dtype, MemoryUse::parameters);
  if (ctx.dtype == DType::f32)
    master_ = piece_of(compute_);
  else if (!frozen_)
    master_ = ctx.long_lived(1, piece_size(), DType::f32, MemoryUse::optimizer);
}

void ParameterGroup::start_gather(const Context& ctx) {
  if (!gathered_.empty() || !records_.empty()) return;
  in_memory_ = InMemory({compute_}, FileAccess::read);
  if (quantized()) {
    records_ = compute_;
    if (holders().size() == 1) return;
    records_ = ctx.empty(1, stored(sizes_.flat), DType::u8, MemoryUse::gathered);
    records_.set_pending(
        holders().all_gather(buffer_of(records_.raw_view()), buffer_of(compute_.view()), name_));
    return;
  }
  if (holders().size() == 1) {  // the shard is the whole block: nothing to gather
    gathered_ = compute_;
    return;
  }
  gathered_ = ctx.empty(1, sizes_.flat, ctx.dtype, MemoryUse::gathered);
  gathered_.set_pending(
      holders().all_gather(buffer_of(gathered_.raw_view()), buffer_of(compute_.view()), name_));
}

void ParameterGroup::acquire(const Context& ctx) {
  AXONN_CHECK(has_values_ || (!compute_.empty() && !ctx.device().keeps_values()), name_,
              ": its parameters have no values; call LoadedModel::initialise() or "
              "load_checkpoint() before the first pass");
  start_gather(ctx);
  ++users_;
  const Scheduling& scheduling = ctx.scheduling();
  ParameterGroup* next = scheduling.step ? scheduling.step->prefetcher.after(*this) : nullptr;
  if (!scheduling.run.overlap.weights) {
    gathered_.wait();
    records_.wait();
  } else if (next) {
    next->start_gather(ctx);
  }
  if (quantized()) reader_.emplace(ctx);
}

void ParameterGroup::release(Gathered then) {
  AXONN_CHECK(users_ > 0, name_, ": release() without acquire()");
  if (--users_ > 0 || then == Gathered::kept || stays()) return;
  forget_gathered();
}

/// Frees what is gathered, but for codes that are held.
void ParameterGroup::forget_gathered() {
  gathered_ = Tensor();
  if (records_held_ > 0) return;
  records_ = Tensor();
  in_memory_ = InMemory();
}

void ParameterGroup::begin_step(const Context& ctx) {
  fresh_ = true;
  over_data_ = false;
  expected_ = 0;
  if (shard_gradient_.empty())  // the gaps of a whole block stay zero from here on
    shard_gradient_ = ctx.long_lived(1, sizes_.shard, DType::f32, MemoryUse::gradients);
  for (const Parameter* operand : operands_) operand->added_to_ = false;
}

void ParameterGroup::begin_backward(const Context& ctx) {
  if (!gradient_.empty()) return;
  gradient_in_memory_ = bring_gradient(FileAccess::changed);
  if (holders().size() == 1) {
    gradient_ = shard_gradient_;
    return;
  }
  gradient_ = ctx.empty(1, sizes_.flat, DType::f32, MemoryUse::block_gradients);
  float* flat = address<float>(gradient_.view());
  for (const auto& [begin, end] : gaps_)
    ctx.device().fill_zero(flat + begin, (end - begin) * bytes_of(DType::f32));
  for (const Parameter* operand : operands_) operand->added_to_ = false;
}

/// Zeroes the gradients that nothing was added to, such as a bias's on all ranks but one.
void ParameterGroup::clear_unused(const Context& ctx) {
  for (const Parameter* operand : operands_) operand->gradient(ctx);
}

void ParameterGroup::reduce(const Context& ctx) {
  AXONN_CHECK(!over_data_, name_, ": a gradient came after the sum over data had begun");
  const auto& [run, step, scope] = ctx.scheduling();
  if (step && step->reducing) std::exchange(step->reducing, nullptr)->finish_reduce(ctx);
  add_arriving(ctx);
  if (--expected_ > 0) return;  // backward uses the group again: reduce once, after that
  clear_unused(ctx);
  if (holders().size() == 1) {  // gradient_ is the shard; later micro-batches add to it
    gradient_ = Tensor();
    return finish_reduce(ctx);
  }
  sum_shared(ctx, gradient_);
  const Tensor full = std::exchange(gradient_, Tensor());
  Tensor sent = full;
  if (run.reduce_dtype != DType::f32) {
    sent = ctx.empty(1, sizes_.flat, run.reduce_dtype, MemoryUse::block_gradients);
    ctx.backend.run(ops::Cast{sent.view(), full.view()});
  }
  const bool direct = fresh_ && run.reduce_dtype == DType::f32;
  Tensor into = direct ? shard_gradient_
                       : ctx.empty(1, sizes_.shard, run.reduce_dtype, MemoryUse::block_gradients);
  Work work = holders().reduce_scatter(buffer_of(into.view()), buffer_of(sent.raw_view()), name_);
  work.keep(sent.owner());
  into.set_pending(std::move(work));
  if (direct)
    fresh_ = false;
  else
    arriving_ = into;
  if (run.overlap.weight_gradients && step)
    step->reducing = this;
  else
    finish_reduce(ctx);
}

void ParameterGroup::add_arriving(const Context& ctx) {
  shard_gradient_.wait();
  if (arriving_.empty()) return;
  const Tensor part = std::exchange(arriving_, Tensor());
  if (std::exchange(fresh_, false))
    ctx.backend.run(ops::Cast{shard_gradient_.view(), part.view()});
  else
    ctx.backend.run(ops::Add{shard_gradient_.view(), shard_gradient_.view(), part.view()});
}

void ParameterGroup::finish_reduce(const Context& ctx) {
  if (over_data_) return;
  add_arriving(ctx);
  const auto& [run, step, scope] = ctx.scheduling();
  if (step && !step->more_micro_batches && run.overlap.data && expected_ == 0)
    reduce_over_data(ctx);
  gradient_in_memory_ = InMemory();
}

void ParameterGroup::reduce_over_data(const Context& ctx) {
  if (over_data_) return;
  gradient();  // checks that there is one
  const InMemory brought = bring_gradient(FileAccess::changed);
  add_arriving(ctx);
  over_data_ = true;
  if (holders().size() == 1) sum_shared(ctx, shard_gradient_);
  const View shard = shard_gradient_.view();
  shard_gradient_.set_pending(
      grid_.along(Axis::data).reduce_scatter(buffer_of(piece_of(shard)), buffer_of(shard), name_));
}

void ParameterGroup::publish(const Context& ctx) {
  check_allocated("publish");
  if (users_ == 0) {  // what was kept or prefetched is stale now
    gathered_ = records_ = Tensor();
    in_memory_ = InMemory();
  }
  InMemory brought;
  if (grid_.extent(Axis::data) > 1) brought = InMemory({compute_}, FileAccess::changed);
  const View shard = compute_.view();
  compute_.set_pending(
      grid_.along(Axis::data).all_gather(buffer_of(shard), buffer_of(piece_of_compute()), name_));
  if (!ctx.scheduling().run.overlap.data) compute_.wait();
}

std::vector<Tensor> ParameterGroup::pieces() const {
  std::vector<Tensor> all;
  if (!compute_.empty()) all.push_back(piece_of(compute_));
  if (!master_.empty() && master_.owner() != compute_.owner()) all.push_back(master_);
  if (!shard_gradient_.empty()) all.push_back(piece_of(shard_gradient_));
  return all;
}

void ParameterGroup::put_away() const {
  for (const Tensor& one : {compute_, master_, shard_gradient_}) one.put_away();
}

View ParameterGroup::gradient() const {
  AXONN_CHECK(!shard_gradient_.empty(), name_,
              ": there is no gradient: ", frozen_ ? "the group is frozen" : "no step was begun");
  return piece_of(shard_gradient_.view());
}

std::int64_t ParameterGroup::decayed() const {
  return std::clamp<std::int64_t>(sizes_.decayed - layout_.piece_begin(grid_.coords(), sizes_), 0,
                                  piece_size());
}

/// Sums the gradients of key-value heads that several ranks of x read: each has a summand. Copies
/// the shared segments of all parameters by global row into one buffer, all-reduces it over x, and
/// copies the sums back.
void ParameterGroup::sum_shared(const Context& ctx, const Tensor& flat) {
  struct Part {
    std::int64_t local, in_union, count;
  };
  std::vector<Part> parts;
  std::int64_t size = 0;
  std::optional<Axis> axis;
  for (const auto& parameter : parameters_) {
    const Layout& layout = parameter->spec_.layout;
    if (!layout.shared(grid_.shape())) continue;
    axis = layout.row_axis;
    std::int64_t row = 0;
    for (const Segment& segment : layout.segments) {
      if (segment.kind == Segment::Kind::shared) {
        for (const Slice& slice : layout.slices(grid_.shape(), grid_.coords()))
          if (slice.row >= row && slice.row < row + segment.rows)
            parts.push_back({parameter->offset_ + slice.offset,
                             size + (slice.row - row) * slice.cols, slice.count()});
        size += segment.rows * parameter->local_cols_;
      }
      row += segment.rows;
    }
  }
  if (!axis) return;  // else also a rank that reads none takes part
  Tensor all = ctx.zeros(1, size, DType::f32, MemoryUse::block_gradients);
  float* sums = address<float>(all.view());
  float* mine = address<float>(flat.view());
  for (const Part& p : parts) ctx.device().copy(sums + p.in_union, mine + p.local, p.count * 4);
  all.set_pending(grid_.along(*axis).all_reduce(buffer_of(all.raw_view()), name_));
  sums = address<float>(all.view());
  for (const Part& p : parts) ctx.device().copy(mine + p.local, sums + p.in_union, p.count * 4);
}

namespace {

/// The initial values of a slice's elements from `first` on.
void fill_initial(const ParameterSpec& spec, const Slice& at, std::int64_t first,
                  std::uint64_t seed, std::span<float> out) {
  const Random random(seed, spec.name);
  const std::int64_t width = spec.layout.cols;
  const double mean = spec.init_mean, std = spec.init_std;
#pragma omp parallel for
  for (std::int64_t e = first; e < first + std::ssize(out); ++e) {
    const std::int64_t index = (at.row + e / at.cols) * width + at.col + e % at.cols;
    out[e - first] = static_cast<float>(std == 0 ? mean : mean + std * random.normal(index));
  }
}

}  // namespace

void ParameterGroup::initialise(const Context& ctx, std::uint64_t seed) {
  check_allocated("initialise");
  constexpr std::int64_t kAtOnce = 1 << 20;  // elements in host memory
  if (quantized()) {
    quantize_values(ctx, [&](const ParameterSpec& spec, const Slice& slice, std::span<float> out) {
      fill_initial(spec, slice, slice.begin, seed, out);
    });
    return publish_values(ctx);
  }
  std::vector<float> host;
  for (const auto& [spec, slice] : piece_slices_)
    for (std::int64_t first = slice.begin; first < slice.end; first += kAtOnce) {
      host.resize(std::min(kAtOnce, slice.end - first));
      fill_initial(*spec, slice, first, seed, host);
      set_values(ctx, slice.offset + first - slice.begin, host);
    }
  publish_values(ctx);
}

void ParameterGroup::set_values(const Context& ctx, std::int64_t offset,
                                std::span<const float> values) {
  if (!master_.empty()) {
    const View to = master().col_range(offset, std::ssize(values));
    ctx.device().copy_from_host(to.data, values.data(), std::ssize(values) * 4);
    if (on_set_) on_set_(offset, std::ssize(values));
    return;
  }
  const auto round_to = [&]<typename T>(T) {
    std::vector<T> rounded(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) put(rounded[i], values[i]);
    set_values(ctx, offset, dtype_of<T>, std::as_bytes(std::span(rounded)));
  };
  if (compute_.dtype() == DType::bf16)
    round_to(bf16{});
  else
    round_to(f16{});
}

void ParameterGroup::set_values(const Context& ctx, std::int64_t offset, DType dtype,
                                std::span<const std::byte> values) {
  AXONN_CHECK(takes(dtype), name_, ": got ", name_of(dtype), " values, wanted ",
              master_.empty() ? name_of(compute_.dtype()) : "f32 for the master copy");
  gathered_.wait();  // an unused prefetch may still be reading
  const View to = piece_of_compute().col_range(offset, std::ssize(values) / bytes_of(dtype));
  ctx.device().copy_from_host(to.data, values.data(), std::ssize(values));
}

void ParameterGroup::set_block(const Context& ctx, const Parameter& parameter,
                               std::span<const float> values) {
  AXONN_CHECK(std::ssize(values) == parameter.size(), parameter.spec().name, ": ", values.size(),
              " values for a block of ", parameter.size());
  const std::int64_t piece =
      holders().rank() * sizes_.shard + grid_.coord(Axis::data) * sizes_.piece;
  const std::int64_t begin = std::max(parameter.offset_, piece),
                     end = std::min(parameter.offset_ + parameter.size(), piece + sizes_.piece);
  if (begin < end)
    set_values(ctx, begin - piece, values.subspan(begin - parameter.offset_, end - begin));
}

void ParameterGroup::publish_values(const Context& ctx) {
  has_values_ = true;
  ++publishes_;
  if (!master_.empty() && ctx.dtype != DType::f32)
    ctx.backend.run(ops::Cast{piece_of_compute(), master()});
  publish(ctx);
  put_away();
}

namespace {

void sum_partial(const Context& ctx, std::span<ParameterGroup* const> groups, Axis axis) {
  if (ctx.grid.extent(axis) == 1) return;
  std::vector<View> runs;
  std::int64_t count = 0;
  for (ParameterGroup* group : groups) {
    for (const auto& [spec, slice] : group->piece_slices()) {
      if (!spec->layout.partial.has(axis)) continue;
      runs.push_back(group->gradient().col_range(slice.offset, slice.count()));
      count += slice.count();
    }
  }
  if (runs.empty()) return;
  const Tensor sums = ctx.empty(1, count, DType::f32, MemoryUse::block_gradients);
  const auto each = [&](const auto& copy) {
    std::int64_t at = 0;
    for (const View& run : runs) {
      copy(sums.raw_view().col_range(at, run.cols), run);
      at += run.cols;
    }
  };
  each([&](const View& sum, const View& run) { ctx.backend.run(ops::Cast{sum, run}); });
  ctx.grid.along(axis).all_reduce(buffer_of(sums.view()), "partial gradients").wait();
  each([&](const View& sum, const View& run) { ctx.backend.run(ops::Cast{run, sum}); });
}

}  // namespace

void finish_gradients(const Context& ctx, std::span<ParameterGroup* const> groups) {
  for (ParameterGroup* group : groups) group->reduce_over_data(ctx);
  for (Axis axis : {Axis::x, Axis::y}) sum_partial(ctx, groups, axis);
}

}  // namespace axonn
