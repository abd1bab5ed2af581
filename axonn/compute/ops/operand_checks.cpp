#include "axonn/compute/ops/operand_checks.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

void Checker::shape(std::string_view name, const View& view, std::int64_t rows,
                    std::int64_t cols) const {
  AXONN_CHECK(view.rows == rows && view.cols == cols, operation, ": ", name, " is ", view,
              ", want (", rows, ',', cols, ')');
  AXONN_CHECK(view.count() == 0 || view.data, operation, ": ", name, ' ', view, " has no memory");
  AXONN_CHECK(view.rows <= 1 || view.stride >= view.cols, operation, ": ", name, ' ', view,
              " has rows that overlap, ", view.stride, " elements apart");
}

void Checker::type(std::string_view name, const View& view,
                   std::initializer_list<DType> wanted) const {
  if (std::ranges::find(wanted, view.dtype) != wanted.end()) return;
  std::ostringstream names;
  for (DType dtype : wanted) names << (names.tellp() > 0 ? " or " : "") << name_of(dtype);
  fail(Where::here(), operation, ": ", name, " is ", view, ", want ", names.str());
}

void check_matmul(const Matmul& args) {
  const Checker check{Matmul::kName};
  const View &out = args.out, &a = args.a, &b = args.b, &bias = args.bias;
  const bool a_transposed = args.a_transposed, b_transposed = args.b_transposed;
  const std::int64_t K = a_transposed ? a.rows : a.cols;
  check.values("a", a, a_transposed ? K : out.rows, a_transposed ? out.rows : K);
  check.typed("b", b, a.dtype, b_transposed ? out.cols : K, b_transposed ? K : out.cols);
  check.type("out", out, {a.dtype, DType::f32});
  check.shape("out", out, out.rows, out.cols);
  if (bias.data) check.typed("bias", bias, a.dtype, 1, out.cols);
  const bool derivative = args.gelu_derivative_at.data;
  AXONN_CHECK(args.gelu + derivative + args.accumulate <= 1 && !(derivative && bias.data),
              "matmul: gelu, gelu_derivative_at and accumulate exclude each other; ",
              "gelu_derivative_at and bias do so, too");
  AXONN_CHECK(args.gelu || !args.gelu_input.data, "matmul: gelu_input without gelu");
  if (args.gelu_input.data) check.like("gelu_input", args.gelu_input, out);
  if (derivative) check.like("gelu_derivative_at", args.gelu_derivative_at, out);
  if (!args.bias_gradient.data) return;
  AXONN_CHECK(a_transposed, "matmul: bias_gradient needs a transposed a, but a is not transposed");
  check.f32("bias_gradient", args.bias_gradient, 1, out.rows);
}

void check_matmuls(std::span<const Matmul> all) {
  for (const Matmul& one : all) check_matmul(one);
  if (all.size() < 2) return;
  const MatmulShape first = shape_of(all.front());
  for (std::size_t i = 1; i < all.size(); ++i) {
    const MatmulShape got = shape_of(all[i]);
    MatmulShape want = first;
    (first.a_transposed ? want.K : want.M) = first.a_transposed ? got.K : got.M;
    want.accumulate = got.accumulate;
    AXONN_CHECK(got == want, "matmuls: product ", i, " is ", to_string(got), " and product 0 ",
                to_string(first), ", want them alike but for ", first.a_transposed ? "K" : "M");
  }
}

void check_quantized_matmul(const QuantizedMatmul& args) {
  const Checker check{QuantizedMatmul::kName};
  const std::int64_t N = args.out.cols, K = args.a.cols;
  check.values("a", args.a);
  check.type("out", args.out, {args.a.dtype, DType::f32});
  check.shape("out", args.out, args.a.rows, N);
  AXONN_CHECK(K % args.form.unit == 0, QuantizedMatmul::kName, ": a has ", K,
              " columns, want a multiple of ", args.form.unit, ", the values of a record");
  check.typed("records", args.records, DType::u8, 1, args.form.bytes(N * K));
  if (args.bias.data) check.typed("bias", args.bias, args.a.dtype, 1, N);
}

void check_attention(std::string_view operation, const Attention& args) {
  const Checker check{operation};
  const std::int64_t rows = args.q.rows, keys = args.k.rows, T = args.positions, D = args.head_dim;
  AXONN_CHECK(T > 0 && keys % T == 0, operation, ": k has ", keys,
              " rows, want whole sequences of ", T, " positions");
  if (args.query_blocks.data) {
    const std::int64_t each = keys > 0 ? keys / T * kSequenceBlock : rows + 1;
    AXONN_CHECK(T % kSequenceBlock == 0 && rows % each == 0 && rows <= keys, operation, ": q has ",
                rows, " rows at query_blocks, and k ", keys / T, " sequences of ", T,
                " positions, want multiples of ", kSequenceBlock,
                " for each sequence, and no more rows of q than of k");
    check.ids("query_blocks", args.query_blocks, rows / kSequenceBlock);
  }
  AXONN_CHECK(D > 0 && args.heads >= 0 && args.group > 0 && args.first_query >= 0 &&
                  args.first_query < args.group,
              operation, ": want head_dim and group above 0 and first_query below group, got ",
              args.heads, " heads of width ", D, ", group ", args.group, ", first_query ",
              args.first_query);
  AXONN_CHECK(args.window >= 0, operation, ": window ", args.window, ", want 0 (all) or more keys");
  AXONN_CHECK(args.k.cols % D == 0 &&
                  (args.first_query + args.heads + args.group - 1) / args.group <= args.k.cols / D,
              operation, ": k is ", args.k, ", too narrow for ", args.heads, " heads of width ", D,
              " (or no whole heads), group ", args.group, ", first_query ", args.first_query);
  check.values("q", args.q, args.query_blocks.data ? rows : keys, args.heads * D);
  for (const auto& [name, view] : {std::pair{"k", &args.k}, {"v", &args.v}})
    check.typed(name, *view, args.q.dtype, keys, args.k.cols);
  check.like("out", args.out, args.q);
  if (args.starts.data) check.ids("starts", args.starts, rows);
  check.f32("stats", args.stats, rows, args.heads);
}

void check_attention_backward(const AttentionBackward& args) {
  check_attention(AttentionBackward::kName, args.forward);
  const Checker check{AttentionBackward::kName};
  check.like("d_out", args.d_out, args.forward.q);
  check.like("d_q", args.d_q, args.forward.q);
  const View& k = args.forward.k;
  check.type("d_k", args.d_k, {k.dtype, DType::f32});
  check.shape("d_k", args.d_k, k.rows, k.cols);
  check.like("d_v", args.d_v, args.d_k);
}

void check_cached_attention(const CachedAttention& args) {
  constexpr std::string_view operation = CachedAttention::kName;
  const Checker check{operation};
  const std::int64_t rows = args.q.rows, D = args.head_dim;
  AXONN_CHECK(
      args.entries > 0 && args.kv_heads > 0 && D > 0 && args.group > 0 && args.first_query >= 0 &&
          args.first_query < args.group && args.window >= 0 && (args.window > 0 || !args.chunks) &&
          args.first_query + args.heads <= args.kv_heads * args.group,
      operation, ": want sizes above 0 and query heads in the groups of the key-value heads, got ",
      args.heads, " heads of width ", D, " over ", args.kv_heads, " key-value heads, group ",
      args.group, ", first_query ", args.first_query, ", slots of ", args.entries,
      " entries, window ", args.window, args.chunks ? " as chunks" : "");
  check.values("q", args.q, rows, args.heads * D);
  check.typed("out", args.out, args.q.dtype, rows, args.heads * D);
  if (args.stats.data) check.f32("stats", args.stats, rows, args.heads);
  for (const auto& [name, view] : {std::pair{"keys", args.keys}, {"values", args.values}}) {
    const bool codes = view.dtype == DType::u8;
    check.typed(name, view, codes ? DType::u8 : args.q.dtype, args.keys.rows,
                codes ? HeadCodes::bytes(D) : D);
    check.type(name, view, {args.keys.dtype});
    AXONN_CHECK(view.contiguous() && view.rows % (args.kv_heads * args.entries) == 0, operation,
                ": ", name, " is ", view, ", want whole slots of ", args.kv_heads, " heads of ",
                args.entries, " entries, one after another");
  }
  check.ids("slots", args.slots, rows);
  check.ids("positions", args.positions, rows);
}

}  // namespace axonn
