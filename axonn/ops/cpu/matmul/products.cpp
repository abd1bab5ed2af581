#include "axonn/ops/cpu/matmul/products.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "axonn/base/check.h"
#include "axonn/ops/cpu/instructions.h"
#include "axonn/ops/cpu/matmul/few_rows.h"
#include "axonn/ops/cpu/matmul/float_operands.h"
#include "axonn/ops/cpu/matmul/product_plan.h"
#include "axonn/ops/cpu/scratch.h"
#include "axonn/ops/matmul_shape.h"
#include "axonn/ops/operand_checks.h"

namespace axonn::cpu {

namespace {

constexpr std::string_view kStreamed = "streamed";  ///< the way that few_rows.h computes

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

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::desc desc_of(const View& view, bool transposed = false) {
  const dnnl::memory::dim stride = std::max<std::int64_t>(view.stride, view.cols);
  if (transposed) return {{view.cols, view.rows}, type_of(view.dtype), {1, stride}};
  return {{view.rows, view.cols}, type_of(view.dtype), {stride, 1}};
}

/// Everything that a primitive depends on.
struct Key {
  MatmulShape shape;
  std::int64_t out_stride, a_stride, b_stride;
  bool pack_a, pack_b;

  auto operator<=>(const Key&) const = default;
};

using Arguments = std::unordered_map<int, dnnl::memory>;

/// One thread's memory: the library's scratchpad, and the parts of operands that were packed last.
struct ThreadMemory {
  struct Packed {
    Scratch memory;
    const void* part = nullptr;    ///< which part of the operand is packed
    const void* layout = nullptr;  ///< by which Packing

    void forget() { part = layout = nullptr; }
  };
  Scratch scratch;
  Packed a, b;
  FloatOperands floats;
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

dnnl::memory::desc any_layout(const dnnl::memory::desc& plain) {
  return {plain.dims(), plain.data_type(), dnnl::memory::format_tag::any};
}

/// A primitive and, for each thread, the memory objects through which it gets its pointers.
class Primitive {
 public:
  Primitive(const Matmul& args, const ProductPlan& plan, const dnnl::engine& engine, int threads) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (args.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    const auto plain_a = desc_of(args.a, args.a_transposed),
               plain_b = desc_of(args.b, args.b_transposed), out = desc_of(args.out);
    const auto a = plan.pack_a ? any_layout(plain_a) : plain_a,
               b = plan.pack_b ? any_layout(plain_b) : plain_b;
    const dnnl::memory::desc bias({1, args.out.cols}, type_of(args.a.dtype),
                                  dnnl::memory::format_tag::ab);
    const dnnl::matmul::primitive_desc how(
        args.bias.data ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out),
        attributes, engine);
    primitive_ = dnnl::matmul(how);
    scratch_bytes_ = static_cast<std::int64_t>(how.scratchpad_desc().get_size());
    if (plan.pack_a) pack_a_.emplace(plain_a, how.src_desc(), engine, threads);
    if (plan.pack_b) pack_b_.emplace(plain_b, how.weights_desc(), engine, threads);
    const auto memory = [&](const dnnl::memory::desc& desc) {
      return dnnl::memory(desc, engine, nullptr);
    };
    for (int i = 0; i < threads; ++i) {
      arguments_.push_back({{DNNL_ARG_SRC, memory(how.src_desc())},
                            {DNNL_ARG_WEIGHTS, memory(how.weights_desc())},
                            {DNNL_ARG_DST, memory(out)},
                            {DNNL_ARG_SCRATCHPAD, memory(how.scratchpad_desc())}});
      if (args.bias.data) arguments_.back().emplace(DNNL_ARG_BIAS, memory(bias));
    }
  }

  void run(const Matmul& args, const dnnl::stream& stream, int thread, ThreadMemory& own) {
    void* a = pack_a_ ? pack_a_->pack(args.a.data, stream, thread, own.a) : args.a.data;
    void* b = pack_b_ ? pack_b_->pack(args.b.data, stream, thread, own.b) : args.b.data;
    auto& arguments = arguments_[thread];
    arguments.at(DNNL_ARG_SRC).set_data_handle(a);
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(b);
    arguments.at(DNNL_ARG_DST).set_data_handle(args.out.data);
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(own.scratch.take<char>(scratch_bytes_));
    if (args.bias.data) arguments.at(DNNL_ARG_BIAS).set_data_handle(args.bias.data);
    primitive_.execute(stream, arguments);
  }

 private:
  dnnl::matmul primitive_;
  std::int64_t scratch_bytes_ = 0;
  std::optional<Packing> pack_a_, pack_b_;
  std::vector<Arguments> arguments_;  // by thread
};

/// Makes oneDNN use one thread for calls from the current thread while this object exists. oneDNN
/// plans some primitives for as many threads as OpenMP has when they are made. Others (those of
/// AVX2, and bf16 without bf16 instructions) ask OpenMP when they run: in a parallel region of one
/// thread, which does not count as parallel, they would start threads of their own, and their sums
/// would depend on the number of threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// A product with K = 0: out is the bias plus, if it accumulates, the old out.
template <typename Out, typename Bias>
void add_nothing(const Matmul& args) {
  for (std::int64_t r = 0; r < args.out.rows; ++r)
    for (std::int64_t c = 0; c < args.out.cols; ++c) {
      Out& out = args.out.row<Out>(r)[c];
      put(out,
          (args.accumulate ? get(out) : 0) + (args.bias.data ? get(args.bias.as<Bias>()[c]) : 0));
    }
}

}  // namespace

struct Products::State {
  int threads;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<MatmulShape, ProductPlan> chosen;
  std::map<Key, Primitive> made;
  std::vector<ThreadMemory> memory;  // by thread

  /// Whether few_rows.h computes the product: the default for few rows.
  bool streams(const MatmulShape& shape) const {
    return has_few_rows(shape) && !chosen.contains(shape);
  }

  ProductPlan plan_of(const MatmulShape& shape) const {
    const auto found = chosen.find(shape);
    return found == chosen.end() ? default_plan(shape, library_multiplies_bf16()) : found->second;
  }

  Key key_of(const Matmul& product, const ProductPlan& plan) const {
    return {shape_of(product), product.out.stride, product.a.stride,
            product.b.stride,  plan.pack_a,        plan.pack_b};
  }

  void make_primitive(const Matmul& product, const ProductPlan& plan) {
    const Key key = key_of(product, plan);
    if (made.contains(key)) return;
    const OneThread one;
    made.try_emplace(key, product, plan, engine, threads);
  }

  void make_primitives(const Matmul& args, const ProductPlan& plan);
  void run_panel(const Matmul& panel, const ProductPlan& plan, int thread);
  void run(const Matmul& args);
};

/// Makes the primitives of all panels. Only panels in the last row or column have other shapes, and
/// only the first and last steps differ from the others.
void Products::State::make_primitives(const Matmul& args, const ProductPlan& plan) {
  for (const std::int64_t i : {std::int64_t{0}, plan.rows.parts - 1})
    for (const std::int64_t j : {std::int64_t{0}, plan.cols.parts - 1}) {
      const Matmul panel = panel_of(args, plan, i, j);
      if (!plan.as_floats) {
        make_primitive(panel, plan);
        continue;
      }
      const std::int64_t steps = FloatOperands::steps(panel);
      for (std::int64_t step : {std::int64_t{0}, std::min<std::int64_t>(1, steps - 1), steps - 1})
        make_primitive(FloatOperands::step(panel, step), plan);
    }
}

void Products::State::run_panel(const Matmul& panel, const ProductPlan& plan, int thread) {
  ThreadMemory& own = memory[thread];
  const auto multiply = [&](const Matmul& product) {
    made.at(key_of(product, plan)).run(product, stream, thread, own);
  };
  if (!plan.as_floats) return multiply(panel);
  for (std::int64_t step = 0; step < FloatOperands::steps(panel); ++step)
    multiply(own.floats.load(panel, step));
  own.floats.finish(panel);
}

void Products::State::run(const Matmul& args) {
  const ProductPlan plan = plan_of(shape_of(args));
  make_primitives(args, plan);
  for (ThreadMemory& own : memory) {
    own.a.forget();
    own.b.forget();
    own.floats.forget();
  }

  // Panels that share a packed or converted part are consecutive, and a thread takes several.
  const bool rows_first = !plan.pack_a, shares = plan.pack_a || plan.pack_b || plan.as_floats;
  const std::int64_t run_length = rows_first ? plan.rows.parts : plan.cols.parts;
  const int used = static_cast<int>(std::min<std::int64_t>(threads, plan.panels()));
  const int chunk =
      shares ? static_cast<int>(std::clamp<std::int64_t>(plan.panels() / (2 * used), 1, run_length))
             : 1;
  std::exception_ptr failure;  // an exception must not leave the parallel region
#pragma omp parallel num_threads(used)
  {
    const OneThread one;
#pragma omp for schedule(dynamic, chunk)
    for (std::int64_t task = 0; task < plan.panels(); ++task) {
      const std::int64_t outer = task / run_length, inner = task % run_length;
      const std::int64_t i = rows_first ? inner : outer, j = rows_first ? outer : inner;
      try {
        run_panel(panel_of(args, plan, i, j), plan, omp_get_thread_num());
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

Products::Products(int threads)
    : state_(std::make_unique<State>(
          State{.threads = threads, .chosen = {}, .made = {}, .memory = {}})) {
  state_->memory.resize(threads);
}

Products::~Products() = default;

void Products::run(const Matmul& args) {
  check_matmul(args);
  if (args.out.count() == 0) return;
  if (args.a.count() == 0) {
    if (args.a.dtype == DType::f32) return add_nothing<float, float>(args);
    if (args.out.dtype == DType::f32) return add_nothing<float, bf16>(args);
    return add_nothing<bf16, bf16>(args);
  }
  if (state_->streams(shape_of(args))) return few_rows_matmul(args, state_->threads);
  try {
    state_->run(args);
  } catch (const dnnl::error& error) {
    fail(Where::here(), "matmul: oneDNN refused out ", args.out, ", a ", args.a, ", b ", args.b,
         ": ", error.what());
  }
}

std::string Products::library() {
  return concat("oneDNN ", library_version(), " with ", library_instructions());
}

std::vector<std::string> Products::ways(const MatmulShape& shape) {
  std::vector<std::string> names;
  if (has_few_rows(shape)) names.emplace_back(kStreamed);
  for (const ProductPlan& plan : plans_of(shape, library_multiplies_bf16()))
    names.push_back(to_string(plan));
  return names;
}

bool Products::set_way(const MatmulShape& shape, std::string_view way) {
  if (has_few_rows(shape) && way == kStreamed) {
    state_->chosen.erase(shape);
    return true;
  }
  const auto plan = parse_plan(shape, way, library_multiplies_bf16());
  if (plan) state_->chosen.insert_or_assign(shape, *plan);
  return plan.has_value();
}

}  // namespace axonn::cpu
