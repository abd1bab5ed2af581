#include "axonn/ops/cpu/products.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <unordered_map>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/scratch.h"

namespace axonn::cpu {

namespace {

void check(const Matmul& args) {
  const Checker checker{"matmul"};
  const std::int64_t M = args.out.rows, N = args.out.cols;
  const std::int64_t K = args.a_transposed ? args.a.rows : args.a.cols;
  checker.compute_type("a", args.a);
  checker.type("b", args.b, {args.a.dtype});
  checker.type("out", args.out, {args.a.dtype, DType::f32});
  checker.shape("out", args.out, M, N);
  checker.shape("a", args.a, args.a_transposed ? K : M, args.a_transposed ? M : K);
  checker.shape("b", args.b, args.b_transposed ? N : K, args.b_transposed ? K : N);
  if (!args.bias.data) return;
  checker.type("bias", args.bias, {args.a.dtype});
  checker.shape("bias", args.bias, 1, N);
}

/// One extent cut into `parts` of `size`, the last one shorter.
struct Cut {
  std::int64_t extent, size, parts;

  /// About `wanted` each, in multiples of 32, which divide into the vectors of every kernel.
  static Cut about(std::int64_t extent, std::int64_t wanted) {
    return into(extent, std::max<std::int64_t>(1, (extent + wanted / 2) / wanted));
  }
  static Cut into(std::int64_t extent, std::int64_t parts) {
    const std::int64_t size = ((extent + parts - 1) / parts + 31) / 32 * 32;
    return {extent, size, (extent + size - 1) / size};
  }
  std::int64_t begin(std::int64_t part) const { return part * size; }
  std::int64_t count(std::int64_t part) const { return std::min(size, extent - part * size); }
};

struct Panels {
  Cut rows, cols;

  std::int64_t count() const { return rows.parts * cols.parts; }
};

/// Measured on the products of GPT-2 in both types, on one core with 1 MiB of second cache: b's
/// part of a panel should fit there when it is packed, so narrow panels over many rows; the sums
/// over rows (a transposed) pack a as well, and do best on wide, low ones. Fewer than kPanels
/// would leave cores without work, so rows are cut further, then columns, but not below what
/// spreads the packing over enough arithmetic.
Panels panels_of(const Matmul& args) {
  constexpr std::int64_t kPanels = 6, kLeastRows = 256, kLeastCols = 192;
  constexpr double kSmall = 1e6;  // multiply-adds: some ten microseconds, as waking threads takes
  const std::int64_t M = args.out.rows, N = args.out.cols;
  const std::int64_t K = args.a_transposed ? args.a.rows : args.a.cols;
  if (static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K) < kSmall)
    return {Cut::into(M, 1), Cut::into(N, 1)};
  std::int64_t width = args.a_transposed ? 768 : 384;
  Cut cols = Cut::about(N, width);
  const std::int64_t most_rows = args.a_transposed ? 256 : 1024;
  const std::int64_t for_size = (M + most_rows - 1) / most_rows,
                     for_work = std::min((kPanels + cols.parts - 1) / cols.parts, M / kLeastRows);
  const Cut rows = Cut::into(M, std::max({std::int64_t{1}, for_size, for_work}));
  while (rows.parts * cols.parts < kPanels && width > kLeastCols) cols = Cut::about(N, width /= 2);
  return {rows, cols};
}

/// The panel's part of a product.
Matmul panel_of(const Matmul& args, const Panels& panels, std::int64_t i, std::int64_t j) {
  const std::int64_t row = panels.rows.begin(i), rows = panels.rows.count(i);
  const std::int64_t col = panels.cols.begin(j), cols = panels.cols.count(j);
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

/// Everything a primitive depends on.
struct Key {
  std::int64_t M, N, K;
  std::int64_t out_stride, a_stride, b_stride;
  int options;  // types and flags, a bit each

  auto operator<=>(const Key&) const = default;
};

Key key_of(const Matmul& args) {
  const int options = (args.a_transposed ? 1 : 0) | (args.b_transposed ? 2 : 0) |
                      (args.bias.data ? 4 : 0) | (args.accumulate ? 8 : 0) |
                      (args.a.dtype == DType::bf16 ? 16 : 0) |
                      (args.out.dtype == DType::bf16 ? 32 : 0);
  return {args.out.rows,   args.out.cols, args.a_transposed ? args.a.rows : args.a.cols,
          args.out.stride, args.a.stride, args.b.stride,
          options};
}

/// A primitive and, for each thread, the memory objects that it is given pointers in.
class Primitive {
 public:
  Primitive(const Matmul& args, const dnnl::engine& engine, int threads) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (args.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
    const auto a = desc_of(args.a, args.a_transposed), b = desc_of(args.b, args.b_transposed),
               out = desc_of(args.out);
    const dnnl::memory::desc bias({1, args.out.cols}, type_of(args.a.dtype),
                                  dnnl::memory::format_tag::ab);
    const dnnl::matmul::primitive_desc how(
        args.bias.data ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out),
        attributes, engine);
    primitive_ = dnnl::matmul(how);
    scratch_bytes_ = static_cast<std::int64_t>(how.scratchpad_desc().get_size());
    const auto memory = [&](const dnnl::memory::desc& desc) {
      return dnnl::memory(desc, engine, nullptr);
    };
    for (int i = 0; i < threads; ++i) {
      arguments_.push_back({{DNNL_ARG_SRC, memory(a)},
                            {DNNL_ARG_WEIGHTS, memory(b)},
                            {DNNL_ARG_DST, memory(out)},
                            {DNNL_ARG_SCRATCHPAD, memory(how.scratchpad_desc())}});
      if (args.bias.data) arguments_.back().emplace(DNNL_ARG_BIAS, memory(bias));
    }
  }

  void run(const Matmul& args, const dnnl::stream& stream, int thread, Scratch& scratch) {
    auto& arguments = arguments_[thread];
    arguments.at(DNNL_ARG_SRC).set_data_handle(args.a.data);
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(args.b.data);
    arguments.at(DNNL_ARG_DST).set_data_handle(args.out.data);
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.take<char>(scratch_bytes_));
    if (args.bias.data) arguments.at(DNNL_ARG_BIAS).set_data_handle(args.bias.data);
    primitive_.execute(stream, arguments);
  }

 private:
  dnnl::matmul primitive_;
  std::int64_t scratch_bytes_ = 0;
  std::vector<std::unordered_map<int, dnnl::memory>> arguments_;  // by thread
};

/// oneDNN plans a primitive for as many threads as OpenMP would use when it is made.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

/// A product over K = 0: the sum of nothing, plus what is added to it.
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
  std::map<Key, Primitive> made;
  std::vector<Scratch> scratch;  // by thread

  Primitive& primitive(const Matmul& panel) {
    const Key key = key_of(panel);
    if (const auto found = made.find(key); found != made.end()) return found->second;
    const OneThread one;
    return made.emplace(key, Primitive(panel, engine, threads)).first->second;
  }

  void run(const Matmul& args);
};

void Products::State::run(const Matmul& args) {
  const Panels panels = panels_of(args);
  const std::int64_t last_row = panels.rows.parts - 1, last_col = panels.cols.parts - 1;
  Primitive* primitives[2][2] = {};  // of a panel that is last in neither, one or both ways
  for (int i : {0, 1})
    for (int j : {0, 1})
      primitives[i][j] = &primitive(panel_of(args, panels, i ? last_row : 0, j ? last_col : 0));

  std::exception_ptr failure;  // an exception must not leave the parallel region
  const int used = static_cast<int>(std::min<std::int64_t>(threads, panels.count()));
#pragma omp parallel for num_threads(used) schedule(dynamic)
  for (std::int64_t task = 0; task < panels.count(); ++task) {
    const std::int64_t i = task % panels.rows.parts, j = task / panels.rows.parts;
    const int thread = omp_get_thread_num();
    try {
      primitives[i == last_row][j == last_col]->run(panel_of(args, panels, i, j), stream, thread,
                                                    scratch[thread]);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

Products::Products(int threads)
    : state_(std::make_unique<State>(State{.threads = threads, .made = {}, .scratch = {}})) {
  state_->scratch.resize(threads);
}

Products::~Products() = default;

void Products::run(const Matmul& args) {
  check(args);
  if (args.out.count() == 0) return;
  if (args.a.count() == 0) {
    if (args.a.dtype == DType::f32) return add_nothing<float, float>(args);
    if (args.out.dtype == DType::f32) return add_nothing<float, bf16>(args);
    return add_nothing<bf16, bf16>(args);
  }
  try {
    state_->run(args);
  } catch (const dnnl::error& error) {
    fail(Where::here(), "matmul: oneDNN refused out ", args.out, ", a ", args.a, ", b ", args.b,
         ": ", error.what(),
         args.a.dtype == DType::bf16 ? "; bf16 needs a processor with AVX-512, f32 does not" : "");
  }
}

}  // namespace axonn::cpu
