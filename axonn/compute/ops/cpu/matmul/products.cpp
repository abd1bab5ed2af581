#include "axonn/compute/ops/cpu/matmul/products.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <omp.h>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/compute/ops/cpu/matmul/integer_rows.h"
#include "axonn/compute/ops/cpu/matmul/onednn.h"
#include "axonn/compute/ops/cpu/matmul/product_plan.h"
#include "axonn/compute/ops/cpu/matmul/row_dots.h"
#include "axonn/compute/ops/cpu/matmul/tiled_matmul.h"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cpu {

namespace {

// The ways of rows_matmul(), by its order of sums, and of tiled_matmul().
constexpr std::string_view kStreamed = "streamed", kInvariant = "invariant", kTiled = "tiles";

/// The panel's part of a product.
Matmul panel_of(const Matmul& args, const ProductPlan& plan, std::int64_t i, std::int64_t j) {
  const std::int64_t row = plan.rows.begin(i), rows = plan.rows.count(i);
  const std::int64_t col = plan.cols.begin(j), cols = plan.cols.count(j);
  Matmul part = args;
  part.out = args.out.row_range(row, rows).col_range(col, cols);
  part.a = args.a_transposed ? args.a.col_range(row, rows) : args.a.row_range(row, rows);
  part.b = args.b_transposed ? args.b.row_range(col, cols) : args.b.col_range(col, cols);
  if (args.bias.data) part.bias = args.bias.col_range(col, cols);
  return part;
}

/// K of a step: so deep that sums are seldom loaded and stored, and so shallow that the operands of
/// a default panel, a few MiB in f32, stay in the caches.
constexpr std::int64_t kDepth = 1024;

PanelCut depth_of(const Matmul& panel) {
  const std::int64_t K = panel.a_transposed ? panel.a.rows : panel.a.cols;
  return PanelCut::into(K, (K + kDepth - 1) / kDepth);
}

/// Whether steps write to out directly; otherwise they write to sums in this thread's memory.
bool writes_out(const Matmul& panel) { return panel.out.dtype == DType::f32 && !panel.bias.data; }

/// The part of an operand for one step: columns, or rows if k runs down the rows.
View part_of(const View& operand, bool k_down, std::int64_t begin, std::int64_t count) {
  return k_down ? operand.row_range(begin, count) : operand.col_range(begin, count);
}

/// An f32 matrix of the shape of `like`, without memory. The padded stride keeps a column's
/// elements from falling into a few cache sets, as they would with a power of two.
View floats_like(const View& like) {
  const std::int64_t stride = (like.cols + 15) / 16 * 16 + 16;
  return {nullptr, DType::f32, like.rows, like.cols, stride};
}

float* take(HostScratch& memory, const View& view) {
  return memory.take<float>(view.rows * view.stride);
}

void convert(const View& to, const View& from) {
  const Team team{.far = true};
  with_type(from.dtype, [&]<typename T>(T) {
    for (std::int64_t r = 0; r < from.rows; ++r)
      team.map(
          address<float>(to, r), static_cast<int>(from.cols), [](auto x) { return x; },
          address<const T>(from, r));
  });
}

/// Computes products of f16 operands, and of bf16 for processors without bf16 products, as f32
/// products. Holds one thread's memory for that.
///
/// A panel of the result is the sum of a few steps, each over a range of K: the step's operands are
/// converted to f32 and stay in cache while they are multiplied. Sums are f32 over all of K and the
/// result is rounded once, as in a bf16 product.
///
///   panel  out (m, n) T or f32      a (m, K) or (K, m), b (K, n) or (n, K) T, bf16 or f16
///   step   out (m, n) f32           a (m, k) or (k, m), b (k, n) or (n, k) f32
///
/// Costs (m + n) · K conversions for 2 · m · n · K flops.
class FloatOperands {
 public:
  /// The f32 product of one step; operands in a thread's memory have no addresses yet.
  static Matmul step(const Matmul& panel, std::int64_t index) {
    const PanelCut depth = depth_of(panel);
    const std::int64_t begin = depth.begin(index), count = depth.count(index);
    const bool direct = writes_out(panel);
    return {.out = direct ? panel.out : floats_like(panel.out),
            .a = floats_like(part_of(panel.a, panel.a_transposed, begin, count)),
            .b = floats_like(part_of(panel.b, !panel.b_transposed, begin, count)),
            .a_transposed = panel.a_transposed,
            .b_transposed = panel.b_transposed,
            .bias = {},
            .accumulate = index > 0 || (direct && panel.accumulate)};
  }

  /// The product of step(), with its operands converted to this thread's memory.
  Matmul load(const Matmul& panel, std::int64_t index) {
    const PanelCut depth = depth_of(panel);
    const std::int64_t begin = depth.begin(index), count = depth.count(index);
    Matmul product = step(panel, index);
    if (!writes_out(panel)) product.out.data = take(sums_, product.out);
    product.a.data = take(a_, product.a);
    product.b.data = take(b_, product.b);
    convert(product.a, part_of(panel.a, panel.a_transposed, begin, count));
    const View b = part_of(panel.b, !panel.b_transposed, begin, count);
    if (b.data != loaded_b_) convert(product.b, b);
    loaded_b_ = b.data;
    return product;
  }

  /// Writes panel.out: the sums of the steps, plus the bias, plus the old out if it accumulates.
  void finish(const Matmul& panel) {
    if (writes_out(panel)) return;
    View sums = floats_like(panel.out);
    sums.data = take(sums_, sums);
    const Team team;
    const int n = static_cast<int>(panel.out.cols);
    with_types(panel.out.dtype, panel.a.dtype, [&]<typename Out, typename T>(Out, T) {
      for (std::int64_t r = 0; r < panel.out.rows; ++r) {
        Out* const out = address<Out>(panel.out, r);
        float* const sum = address<float>(sums, r);
        const auto add = [](auto x, auto y) { return x + y; };
        if (panel.accumulate) team.map(sum, n, add, sum, out);
        if (panel.bias.data)
          team.map(out, n, add, sum, address<const T>(panel.bias));
        else
          team.map(
              out, n, [](auto x) { return x; }, sum);
      }
    });
  }

  /// Call this between products, because their operands may have the same addresses.
  void forget() { loaded_b_ = nullptr; }

 private:
  HostScratch a_, b_, sums_;
  const void* loaded_b_ = nullptr;  // the part of b that b_ holds
};

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc desc_of(const View& view, bool transposed = false) {
  const dnnl::memory::dim stride = std::max<std::int64_t>(view.stride, view.cols);
  if (transposed) return {{view.cols, view.rows}, type_of(view.dtype), {1, stride}};
  return {{view.rows, view.cols}, type_of(view.dtype), {stride, 1}};
}

/// Descriptions of a product's matrices.
struct Descs {
  dnnl::memory::desc a, b, out;
};

Descs descs_of(const Matmul& args) {
  return {desc_of(args.a, args.a_transposed), desc_of(args.b, args.b_transposed),
          desc_of(args.out)};
}

/// Whether a primitive is for the extents of its product alone, or for any M; any K if a is
/// transposed.
enum class RowsOf { product, any };

/// The product with `rows` in place of what changes if rows are `any`.
Matmul with_rows(Matmul args, std::int64_t rows) {
  args.a.rows = rows;
  if (!args.a_transposed)
    args.out.rows = rows;
  else
    (args.b_transposed ? args.b.cols : args.b.rows) = rows;
  return args;
}

/// The same matrix in whatever layout the library prefers.
dnnl::memory::desc any_layout(const View& view, bool transposed) {
  return {transposed ? dnnl::memory::dims{view.cols, view.rows}
                     : dnnl::memory::dims{view.rows, view.cols},
          type_of(view.dtype), dnnl::memory::format_tag::any};
}

/// Everything that a primitive depends on; the rows are 0 if it is for any.
struct Key {
  MatmulShape shape;
  std::int64_t out_stride, a_stride, b_stride;
  RowsOf rows;
  bool pack_a, pack_b;

  auto operator<=>(const Key&) const = default;
};

using Arguments = std::unordered_map<int, dnnl::memory>;

/// One thread's memory: the library's scratchpad, and the parts of operands that were packed last.
struct ThreadMemory {
  struct Packed {
    HostScratch memory;
    const void* part = nullptr;    ///< which part of the operand is packed
    const void* layout = nullptr;  ///< by which Packing

    void forget() { part = layout = nullptr; }
  };
  void forget() {
    a.forget();
    b.forget();
    floats.forget();
    tiles.forget();
  }

  HostScratch scratch;
  Packed a, b;
  FloatOperands floats;
  TileMemory tiles;
  std::size_t product = 0;  // to which its packed or converted parts belong
};

/// Copies an operand's part of a panel into the layout that a primitive wants.
class Packing {
 public:
  Packing(const dnnl::memory::desc& from, const dnnl::memory::desc& to, const dnnl::engine& engine,
          int threads)
      : reorder_(dnnl::reorder::primitive_desc(engine, from, engine, to)),
        bytes_(static_cast<std::int64_t>(to.get_size())) {
    for (int i = 0; i < threads; ++i)
      arguments_.push_back({{DNNL_ARG_FROM, dnnl::memory(from, engine, nullptr)},
                            {DNNL_ARG_TO, dnnl::memory(to, engine, nullptr)}});
  }

  /// Returns the packed part; packs it only if this thread packed another one last.
  void* pack(void* part, const dnnl::stream& stream, int thread, ThreadMemory::Packed& packed) {
    void* to = packed.memory.take<char>(bytes_);
    if (packed.part == part && packed.layout == this) return to;
    packed.forget();
    auto& arguments = arguments_[thread];
    arguments.at(DNNL_ARG_FROM).set_data_handle(part);
    arguments.at(DNNL_ARG_TO).set_data_handle(to);
    reorder_.execute(stream, arguments);
    packed.part = part;
    packed.layout = this;
    return to;
  }

 private:
  dnnl::reorder reorder_;
  std::int64_t bytes_;
  std::vector<Arguments> arguments_;  // by thread
};

/// A primitive and, for each thread, the memory objects through which it gets its pointers.
class Primitive {
 public:
  /// With rows `any`, nothing may be packed.
  Primitive(const Matmul& args, const ProductPlan& plan, RowsOf rows, const dnnl::engine& engine,
            int threads)
      : engine_(engine), rows_(rows) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (args.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    const Descs plain =
        descs_of(rows == RowsOf::any ? with_rows(args, DNNL_RUNTIME_DIM_VAL) : args);
    bias_ = {{1, args.out.cols}, type_of(args.a.dtype), dnnl::memory::format_tag::ab};
    const auto plan_packed = [&](bool pack_a, bool pack_b) {
      return onednn::plan_matmul(
          {.src = pack_a ? any_layout(args.a, args.a_transposed) : plain.a,
           .weights = pack_b ? any_layout(args.b, args.b_transposed) : plain.b,
           .bias = args.bias.data ? &bias_ : nullptr,
           .out = plain.out,
           .strided_vector =
               (args.out.rows == 1 && args.a_transposed && args.a.stride > 1 && !pack_a) ||
               (args.out.cols == 1 && args.out.stride > 1)},
          attributes, engine);
    };
    auto how = plan_packed(plan.pack_a, plan.pack_b);
    const bool packs = onednn::packs_into(how.src_desc()) && onednn::packs_into(how.weights_desc());
    if (!packs) how = plan_packed(false, false);
    primitive_ = dnnl::matmul(how);
    scratchpad_ = how.scratchpad_desc();
    if (rows == RowsOf::any) return;
    if (packs && plan.pack_a) pack_a_.emplace(plain.a, how.src_desc(), engine, threads);
    if (packs && plan.pack_b) pack_b_.emplace(plain.b, how.weights_desc(), engine, threads);
    for (int i = 0; i < threads; ++i)
      arguments_.push_back(arguments_of(args, {how.src_desc(), how.weights_desc(), plain.out}));
  }

  void run(const Matmul& args, const dnnl::stream& stream, int thread, ThreadMemory& own) {
    if (rows_ == RowsOf::any) {
      Arguments arguments = arguments_of(args, descs_of(args));
      return run(arguments, {args.a.data, args.b.data}, args, stream, own);
    }
    void* a = pack_a_ ? pack_a_->pack(args.a.data, stream, thread, own.a) : args.a.data;
    void* b = pack_b_ ? pack_b_->pack(args.b.data, stream, thread, own.b) : args.b.data;
    run(arguments_[thread], {a, b}, args, stream, own);
  }

 private:
  Arguments arguments_of(const Matmul& args, const Descs& descs) const {
    const auto memory = [&](const dnnl::memory::desc& desc) {
      return dnnl::memory(desc, engine_, nullptr);
    };
    Arguments arguments{{DNNL_ARG_SRC, memory(descs.a)},
                        {DNNL_ARG_WEIGHTS, memory(descs.b)},
                        {DNNL_ARG_DST, memory(descs.out)},
                        {DNNL_ARG_SCRATCHPAD, memory(scratchpad_)}};
    if (args.bias.data) arguments.emplace(DNNL_ARG_BIAS, memory(bias_));
    return arguments;
  }

  void run(Arguments& arguments, std::pair<void*, void*> operands, const Matmul& args,
           const dnnl::stream& stream, ThreadMemory& own) {
    arguments.at(DNNL_ARG_SRC).set_data_handle(operands.first);
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(operands.second);
    arguments.at(DNNL_ARG_DST).set_data_handle(args.out.data);
    const auto bytes = static_cast<std::int64_t>(scratchpad_.get_size());
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(own.scratch.take<char>(bytes));
    if (args.bias.data) arguments.at(DNNL_ARG_BIAS).set_data_handle(args.bias.data);
    primitive_.execute(stream, arguments);
  }

  dnnl::engine engine_;
  RowsOf rows_;
  dnnl::matmul primitive_;
  dnnl::memory::desc scratchpad_, bias_;
  std::optional<Packing> pack_a_, pack_b_;
  std::vector<Arguments> arguments_;  // by thread; none if rows are `any`
};

/// A product with K = 0: out is the bias plus, if it accumulates, the old out.
template <typename Out, typename Bias>
void add_nothing(const Matmul& args) {
  if (args.accumulate && !args.bias.data) return;
  for (std::int64_t r = 0; r < args.out.rows; ++r)
    for (std::int64_t c = 0; c < args.out.cols; ++c) {
      Out& out = address<Out>(args.out, r)[c];
      put(out, (args.accumulate ? get(out) : 0) +
                   (args.bias.data ? get(address<Bias>(args.bias)[c]) : 0));
    }
}

void add_nothing(const Matmul& args) {
  with_types(args.out.dtype, args.a.dtype,
             [&]<typename Out, typename T>(Out, T) { add_nothing<Out, T>(args); });
}

/// A product and the tasks into which it is cut, each for one thread: panels, or strips of
/// rows_matmul() if it has no plan.
struct Job {
  Matmul args;
  std::optional<ProductPlan> plan;
  RowsOf rows = RowsOf::product;
  std::int64_t first = 0;  ///< number of its first task

  std::int64_t tasks() const { return plan ? plan->panels() : rows_strips(args); }
  /// Panels that share a packed or converted part are consecutive.
  bool rows_first() const { return !plan->pack_a; }
  bool shares() const { return plan && (plan->pack_a || plan->pack_b || plan->as_floats); }
  std::int64_t run_length() const { return rows_first() ? plan->rows.parts : plan->cols.parts; }
  Matmul panel(std::int64_t task) const {
    const std::int64_t outer = task / run_length(), inner = task % run_length();
    return rows_first() ? panel_of(args, *plan, inner, outer) : panel_of(args, *plan, outer, inner);
  }
};

}  // namespace

struct Products::State {
  explicit State(int number) : threads(number), memory(number) {}

  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<MatmulShape, ProductPlan> chosen;
  std::map<Key, Primitive> made;
  std::vector<ThreadMemory> memory;  // by thread
  SumOrder order = SumOrder::fastest;
  bool integers = false;

  /// Whether the product's rows must have bits that depend on no other rows.
  bool invariant(const MatmulShape& shape) const {
    return order == SumOrder::invariant && !shape.a_transposed && shape.b_transposed;
  }

  bool by_integers(const QuantizedMatmul& args) const {
    return integers && order == SumOrder::fastest && has_integer_matmul(args);
  }

  /// The default plan, or none for rows_matmul().
  std::optional<ProductPlan> default_of(const MatmulShape& shape) const {
    if (has_few_rows(shape) || invariant(shape)) return {};
    if (kTilesByDefault) return tile_panels(shape, threads);
    return default_plan(shape, library_multiplies_bf16());
  }

  Job job_of(const Matmul& args) const {
    const MatmulShape shape = shape_of(args);
    const auto found = chosen.find(shape);
    const bool by_default = found == chosen.end() || invariant(shape);
    return {.args = args, .plan = by_default ? default_of(shape) : found->second};
  }

  Key key_of(const Matmul& product, const Job& job) const {
    const Matmul sized = job.rows == RowsOf::any ? with_rows(product, 0) : product;
    return {.shape = shape_of(sized),
            .out_stride = product.out.stride,
            .a_stride = product.a.stride,
            .b_stride = product.b.stride,
            .rows = job.rows,
            .pack_a = job.plan->pack_a,
            .pack_b = job.plan->pack_b};
  }

  void make_primitive(const Matmul& product, const Job& job) {
    const Key key = key_of(product, job);
    if (made.contains(key)) return;
    const onednn::OneThread one;
    made.try_emplace(key, product, *job.plan, job.rows, engine, threads);
  }

  /// Makes the primitives of all panels. Only panels in the last row or column have other shapes,
  /// and only the first and last steps differ from the others.
  void make_primitives(const Job& job) {
    const ProductPlan& plan = *job.plan;
    for (const std::int64_t i : {std::int64_t{0}, plan.rows.parts - 1})
      for (const std::int64_t j : {std::int64_t{0}, plan.cols.parts - 1}) {
        const Matmul panel = panel_of(job.args, plan, i, j);
        if (!plan.as_floats) {
          make_primitive(panel, job);
          continue;
        }
        const std::int64_t steps = depth_of(panel).parts;
        for (std::int64_t step : {std::int64_t{0}, std::min<std::int64_t>(1, steps - 1), steps - 1})
          make_primitive(FloatOperands::step(panel, step), job);
      }
  }

  void run_panel(const Matmul& panel, const Job& job, int thread) {
    ThreadMemory& own = memory[thread];
    const auto multiply = [&](const Matmul& product) {
      if (job.plan->by_blas) return blas::multiply(product);
      made.at(key_of(product, job)).run(product, stream, thread, own);
    };
    if (!job.plan->as_floats) return multiply(panel);
    for (std::int64_t step = 0; step < depth_of(panel).parts; ++step)
      multiply(own.floats.load(panel, step));
    own.floats.finish(panel);
  }

  void run_task(std::span<const Job> jobs, std::int64_t task, int thread) {
    const auto after = std::ranges::upper_bound(jobs, task, {}, &Job::first);
    const Job& job = *(after - 1);
    task -= job.first;
    if (!job.plan) return rows_strip(job.args, order, task);
    ThreadMemory& own = memory[thread];
    const auto product = static_cast<std::size_t>(after - jobs.begin());
    if (own.product != product) own.forget();
    own.product = product;
    if (job.plan->tiled) return tiled_matmul(job.panel(task), own.tiles);
    run_panel(job.panel(task), job, thread);
  }

  /// Computes all products on at most `most` threads.
  void run(std::span<Job> jobs, int most) {
    std::int64_t tasks = 0, longest = 1;  // run of panels that share a part
    for (Job& job : jobs) {
      if (job.plan && !job.plan->tiled && !job.plan->by_blas) make_primitives(job);
      job.first = tasks;
      tasks += job.tasks();
      if (job.shares()) longest = std::max(longest, job.run_length());
    }
    for (ThreadMemory& own : memory) own.forget();

    const int used = static_cast<int>(std::min<std::int64_t>(most, tasks));
    const int chunk =  // a thread takes several panels that share a part
        used > 0 ? static_cast<int>(std::clamp<std::int64_t>(tasks / (2 * used), 1, longest)) : 1;
    std::exception_ptr failure;  // an exception must not leave the parallel region
#pragma omp parallel num_threads(used)
    {
      const onednn::OneThread one;
#pragma omp for schedule(dynamic, chunk)
      for (std::int64_t task = 0; task < tasks; ++task) {
        try {
          run_task(jobs, task, omp_get_thread_num());
        } catch (...) {
#pragma omp critical
          failure = std::current_exception();
        }
      }
    }
    if (failure) std::rethrow_exception(failure);
  }
};

Products::Products(int threads) : state_(std::make_unique<State>(threads)) {}

Products::~Products() = default;

void Products::run(const Matmul& args) {
  check_matmul(args);
  if (args.out.count() == 0) return;
  if (args.a.count() == 0) return add_nothing(args);
  Job job = state_->job_of(args);
  if (!job.plan) return rows_matmul(args, state_->order, state_->threads);
  try {
    state_->run({&job, 1}, state_->threads);
  } catch (const dnnl::error& error) {
    fail(Where::here(), "matmul: oneDNN refused out ", args.out, ", a ", args.a, ", b ", args.b,
         ": ", error.what());
  }
}

void Products::run(std::span<const Matmul> all) {
  std::vector<Job> jobs;
  double flops = 0;
  for (const Matmul& one : all) {
    if (one.out.count() == 0) continue;
    if (one.a.count() == 0) {
      add_nothing(one);
      continue;
    }
    const MatmulShape shape = shape_of(one);
    jobs.push_back({.args = one, .plan = state_->default_of(shape), .rows = RowsOf::any});
    flops += shape.flops();
  }
  if (jobs.empty()) return;
  try {
    state_->run(jobs, flops < kSmallFlops ? 1 : state_->threads);
  } catch (const dnnl::error& error) {
    fail(Where::here(), "matmul: oneDNN refused ", jobs.size(), " products, the first with out ",
         jobs[0].args.out, ", a ", jobs[0].args.a, ", b ", jobs[0].args.b, ": ", error.what());
  }
}

bool Products::reads_codes(const QuantizedMatmul& args) const {
  const View b{nullptr, args.a.dtype, args.out.cols, args.a.cols, args.a.cols};
  const MatmulShape of_values =
      shape_of({.out = args.out, .a = args.a, .b = b, .b_transposed = true, .bias = args.bias});
  const bool chosen = !state_->invariant(of_values) && state_->chosen.contains(of_values);
  return state_->by_integers(args) || (cpu_reads_codes(args) && !chosen);
}

void Products::run(const QuantizedMatmul& args) {
  check_quantized_matmul(args);
  if (args.out.count() == 0) return;
  if (state_->by_integers(args)) return integer_matmul(args, state_->threads);
  rows_matmul(args, state_->order, state_->threads);
}

std::string Products::library() {
  return concat("oneDNN ", library_version(), " with ", library_instructions());
}

void Products::set_order(SumOrder order) { state_->order = order; }
void Products::set_integers(bool value) { state_->integers = value; }

std::vector<std::string> Products::ways(const MatmulShape& shape) const {
  AXONN_CHECK(shape.flops() > 0, "matmul_ways: got a product ", to_string(shape),
              ", want sizes above 0");
  if (state_->invariant(shape)) return {std::string(kInvariant)};
  std::vector<std::string> names;
  if (has_few_rows(shape)) names.emplace_back(kStreamed);
  if (kTilesByDefault) names.emplace_back(kTiled);
  if (!names.empty() && shape.flops() < kSmallFlops) return names;
  for (const ProductPlan& plan : plans_of(shape, library_multiplies_bf16()))
    names.push_back(to_string(plan));
  return names;
}

bool Products::set_way(const MatmulShape& shape, std::string_view way) {
  if (shape.flops() <= 0) return false;
  if (state_->invariant(shape)) return way == kInvariant;
  if (has_few_rows(shape) && way == kStreamed) {
    state_->chosen.erase(shape);
    return true;
  }
  if (way == kTiled) {
    state_->chosen.insert_or_assign(shape, tile_panels(shape, state_->threads));
    return true;
  }
  const auto plan = parse_plan(shape, way, library_multiplies_bf16());
  if (plan) state_->chosen.insert_or_assign(shape, *plan);
  return plan.has_value();
}

}  // namespace axonn::cpu
