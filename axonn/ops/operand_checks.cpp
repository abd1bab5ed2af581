#include "axonn/ops/operand_checks.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Checks the arguments of an operation. Every function throws Error with the names of the
/// operation and of the argument, what it is and what was wanted.
struct Checker {
  std::string_view operation;

  void shape(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void type(std::string_view name, const View& view, std::initializer_list<DType> wanted) const;
  /// f32 or bf16, the types that models compute in.
  void compute_type(std::string_view name, const View& view) const;
};

}  // namespace

namespace {

/// f32 or bf16, of any shape.
void check_values(const Checker& check, const char* name, const View& view) {
  check.compute_type(name, view);
  check.shape(name, view, view.rows, view.cols);
}

/// (rows, cols) f32.
void check_f32(const Checker& check, const char* name, const View& view,
               std::pair<std::int64_t, std::int64_t> shape) {
  check.type(name, view, {DType::f32});
  check.shape(name, view, shape.first, shape.second);
}

/// `view` must have the type and the shape of `other`.
void check_like(const Checker& check, const char* name, const View& view, const View& other) {
  check.type(name, view, {other.dtype});
  check.shape(name, view, other.rows, other.cols);
}

void check_ids(const Checker& check, const char* name, const View& ids, std::int64_t rows) {
  check.type(name, ids, {DType::i32});
  check.shape(name, ids, 1, rows);
}

void check_norm(const Checker& check, const NormOperands& norm) {
  check_values(check, "inp", norm.inp);
  check.compute_type("weight", norm.weight);
  check.shape("weight", norm.weight, 1, norm.inp.cols);
  check_f32(check, "stats", norm.stats, {norm.inp.rows, 2});
}

void check_logits(const Checker& check, const View& logits, const View& targets,
                  const VocabularyPiece& piece) {
  check_values(check, "logits", logits);
  check_ids(check, "targets", targets, logits.rows);
  AXONN_CHECK(piece.first >= 0 && piece.valid >= 0 && piece.valid <= logits.cols, check.operation,
              ": ", piece.valid, " columns from ", piece.first, " of logits ", logits);
}

/// Checks the operands that HeadNorm and its gradients read. Returns the number of heads.
int check_heads(const Checker& check, const HeadNorm& args) {
  check_values(check, "inp", args.inp);
  check_values(check, "weight", args.weight);
  const std::int64_t D = args.weight.cols;
  check.shape("weight", args.weight, 1, D);
  AXONN_CHECK(D > 0 && args.inp.cols % D == 0, check.operation, ": inp is ", args.inp,
              ", want whole heads of width ", D);
  check_f32(check, "rstd", args.rstd, {args.inp.rows, args.inp.cols / D});
  return static_cast<int>(args.inp.cols / D);
}

/// inp (R, 2F), and `half` (R, F) of its type.
void check_gated(const Checker& check, const View& inp, const char* name, const View& half) {
  check_values(check, "inp", inp);
  AXONN_CHECK(inp.cols % 2 == 0, check.operation, ": inp is ", inp,
              ", want an even number of columns: gate, then up");
  check.type(name, half, {inp.dtype});
  check.shape(name, half, inp.rows, inp.cols / 2);
}

/// Checks the operands that AdamW and SGD share.
template <typename Step>
void check_step(const Checker& check, const Step& args) {
  const std::int64_t count = args.master.cols;
  check_f32(check, "master", args.master, {1, count});
  check_f32(check, "gradient", args.gradient, {1, count});
  check.compute_type("out", args.out);
  check.shape("out", args.out, 1, count);
  if (args.scale.data) check_f32(check, "scale", args.scale, {1, 1});
  AXONN_CHECK(args.decayed >= 0 && args.decayed <= count, check.operation, ": ", args.decayed,
              " decayed elements of ", count);
}

void check_epilogue(const Checker& check, const Matmul& args) {
  const bool derivative = args.gelu_derivative_at.data;
  AXONN_CHECK(args.gelu + derivative + args.accumulate <= 1 && !(derivative && args.bias.data),
              "matmul: gelu, gelu_derivative_at and accumulate exclude each other; ",
              "gelu_derivative_at and bias do so, too");
  AXONN_CHECK(args.gelu || !args.gelu_input.data, "matmul: gelu_input without gelu");
  if (args.gelu_input.data) check_like(check, "gelu_input", args.gelu_input, args.out);
  if (derivative) check_like(check, "gelu_derivative_at", args.gelu_derivative_at, args.out);
  if (!args.bias_gradient.data) return;
  AXONN_CHECK(args.a_transposed,
              "matmul: bias_gradient needs a transposed a, but a is not transposed");
  check_f32(check, "bias_gradient", args.bias_gradient, {1, args.out.rows});
}

}  // namespace

void check_matmul(const Matmul& args) {
  const Checker check{"matmul"};
  const View &out = args.out, &a = args.a, &b = args.b, &bias = args.bias;
  const bool a_transposed = args.a_transposed, b_transposed = args.b_transposed;
  const std::int64_t K = a_transposed ? a.rows : a.cols;
  check.compute_type("a", a);
  check.shape("a", a, a_transposed ? K : out.rows, a_transposed ? out.rows : K);
  check.type("b", b, {a.dtype});
  check.shape("b", b, b_transposed ? out.cols : K, b_transposed ? K : out.cols);
  check.type("out", out, {a.dtype, DType::f32});
  check.shape("out", out, out.rows, out.cols);
  if (bias.data) {
    check.type("bias", bias, {a.dtype});
    check.shape("bias", bias, 1, out.cols);
  }
  check_epilogue(check, args);
}

void check_row_moments(const View& out, const View& inp) {
  const Checker check{"row_moments"};
  check_values(check, "inp", inp);
  check_f32(check, "out", out, {inp.rows, 2});
  AXONN_CHECK(inp.cols > 0 || inp.rows == 0, "row_moments: inp is ", inp,
              ", want at least one column");
}

void check_add_moments(const View& out, const View& moments, const View& a, const View& b) {
  const Checker check{"add_moments"};
  check_values(check, "out", out);
  check_like(check, "a", a, out);
  check_like(check, "b", b, out);
  check_f32(check, "moments", moments, {out.rows, 2});
  AXONN_CHECK(out.cols > 0 || out.rows == 0, "add_moments: out is ", out,
              ", want at least one column");
}

std::int64_t check_combine_moments(const View& out, const View& moments, std::int64_t count) {
  const Checker check{"combine_moments"};
  check.type("moments", moments, {DType::f32});
  check_f32(check, "out", out, {out.rows, 2});
  if (out.rows == 0) return 0;
  const std::int64_t pieces = moments.rows / out.rows;
  check.shape("moments", moments, pieces * out.rows, 2);
  AXONN_CHECK(pieces >= 1 && count >= 1, "combine_moments: ", pieces, " pieces of ", count,
              " elements each, want at least one of both");
  return pieces;
}

void check_layer_norm(const NormOperands& norm, const View& out, const View& bias) {
  const Checker check{norm.operation};
  check_norm(check, norm);
  check_like(check, "out", out, norm.inp);
  if (bias.data) check_like(check, "bias", bias, norm.weight);
}

void check_norm_sums(const NormOperands& norm, const View& out, const View& d_out) {
  const Checker check{norm.operation};
  check_norm(check, norm);
  check_like(check, "d_out", d_out, norm.inp);
  check_f32(check, "out", out, {norm.inp.rows, 2});
}

void check_layer_norm_backward(const NormBackward& args) {
  const Checker check{"layer_norm_backward"};
  const View& inp = args.inp;
  check_norm(check, {"layer_norm_backward", inp, args.weight, args.stats});
  check_like(check, "d_inp", args.d_inp, inp);
  check_like(check, "d_out", args.d_out, inp);
  if (args.residual.data) check_like(check, "residual", args.residual, inp);
  check_f32(check, "sums", args.sums, {inp.rows, 2});
  AXONN_CHECK(args.width >= inp.cols && args.width > 0, "layer_norm_backward: width ", args.width,
              " of whole rows, want at least the columns of inp ", inp);
}

void check_layer_norm_weight_backward(const NormOperands& norm, const View& d_bias,
                                      const View& d_out) {
  const Checker check{norm.operation};
  check_norm(check, norm);
  check.type("d_weight", norm.weight, {DType::f32});
  check_like(check, "d_out", d_out, norm.inp);
  if (d_bias.data) check_like(check, "d_bias", d_bias, norm.weight);
}

void check_moments_about_zero(const View& out, const View& moments) {
  const Checker check{"moments_about_zero"};
  check_f32(check, "out", out, {out.rows, 2});
  check_f32(check, "moments", moments, {out.rows, 2});
}

int check_head_norm(const HeadNorm& args) {
  const Checker check{"head_norm"};
  const int heads = check_heads(check, args);
  check_like(check, "out", args.out, args.inp);
  return heads;
}

int check_head_norm_backward(const HeadNormBackward& args) {
  const Checker check{"head_norm_backward"};
  const HeadNorm& forward = args.forward;
  const int heads = check_heads(check, forward);
  check_like(check, "d_out", args.d_out, forward.inp);
  check_like(check, "d_inp", args.d_inp, forward.inp);
  if (args.d_weight.data) check_f32(check, "d_weight", args.d_weight, {1, forward.weight.cols});
  return heads;
}

void check_rotary_embedding(const RotaryEmbedding& args) {
  const Checker check{"rotary_embedding"};
  const View &inp = args.inp, &table = args.table;
  check_values(check, "inp", inp);
  check_like(check, "out", args.out, inp);
  check_f32(check, "table", table, {table.rows, table.cols});
  AXONN_CHECK(table.rows > 0 && (args.positions.data || inp.rows % table.rows == 0),
              "rotary_embedding: inp is ", inp, ", want whole sequences of ", table.rows,
              " positions (table is ", table, ")");
  if (args.positions.data) check_ids(check, "positions", args.positions, inp.rows);
  AXONN_CHECK(table.cols > 0 && table.cols % 2 == 0 && inp.cols % table.cols == 0,
              "rotary_embedding: inp is ", inp, ", want whole heads of the width of table ", table,
              ", which must be even");
}

void check_swiglu(const View& out, const View& inp) { check_gated({"swiglu"}, inp, "out", out); }

void check_swiglu_backward(const View& d_inp, const View& d_out, const View& inp) {
  const Checker check{"swiglu_backward"};
  check_gated(check, inp, "d_out", d_out);
  check_like(check, "d_inp", d_inp, inp);
}

void check_dropout(const Dropout& args) {
  const Checker check{"dropout"};
  check_values(check, "inp", args.inp);
  check_like(check, "out", args.out, args.inp);
  AXONN_CHECK(args.probability >= 0 && args.probability < 1, "dropout: probability ",
              args.probability, ", want 0 or more and less than 1");
}

void check_elementwise(const char* operation, const View& out, const char* name, const View& inp) {
  const Checker check{operation};
  check_values(check, "out", out);
  check.compute_type(name, inp);
  check.shape(name, inp, out.rows, out.cols);
}

void check_column_sum(const View& out, const View& inp) {
  const Checker check{"column_sum"};
  check_values(check, "inp", inp);
  check_f32(check, "out", out, {1, inp.cols});
}

void check_embedding(const TokenEmbedding& args) {
  const Checker check{"embedding"};
  const View &out = args.out, &learned = args.learned;
  check_values(check, "out", out);
  check_ids(check, "ids", args.ids, out.rows);
  check.type("table", args.table, {out.dtype});
  check.shape("table", args.table, args.table.rows, out.cols);
  if (args.positions.data) check_ids(check, "positions", args.positions, out.rows);
  if (!learned.data) return;
  check.type("learned", learned, {out.dtype});
  check.shape("learned", learned, learned.rows, out.cols);
  AXONN_CHECK(learned.rows > 0, "embedding: learned is ", learned, ", want at least one row");
}

void check_embedding_backward(const View& d_table, const View& d_out, const View& ids) {
  const Checker check{"embedding_backward"};
  check_values(check, "d_out", d_out);
  check_ids(check, "ids", ids, d_out.rows);
  check_f32(check, "d_table", d_table, {d_table.rows, d_out.cols});
}

void check_positions_backward(const View& d_positions, const View& d_out) {
  const Checker check{"positions_backward"};
  check_values(check, "d_out", d_out);
  check_f32(check, "d_positions", d_positions, {d_positions.rows, d_out.cols});
}

void check_softmax_stats(const View& out, const View& logits, const View& targets,
                         const VocabularyPiece& piece) {
  const Checker check{"softmax_stats"};
  check_logits(check, logits, targets, piece);
  check_f32(check, "out", out, {logits.rows, 3});
}

std::int64_t check_softmax_pieces(const char* operation, const NamedView& out, const View& stats,
                                  const View& targets) {
  const Checker check{operation};
  check_ids(check, "targets", targets, targets.cols);
  check_f32(check, out.name, out.view, {targets.cols, 1});
  if (targets.cols == 0) return 0;
  const std::int64_t pieces = stats.rows / targets.cols;
  check_f32(check, "stats", stats, {pieces * targets.cols, 3});
  AXONN_CHECK(pieces >= 1, operation, ": stats is ", stats, ", want at least ", targets.cols,
              " rows");
  return pieces;
}

void check_cross_entropy_backward(const LogitsBackward& args) {
  const Checker check{"cross_entropy_backward"};
  check_logits(check, args.logits, args.targets, args.piece);
  check.compute_type("d_logits", args.d_logits);
  check.shape("d_logits", args.d_logits, args.logits.rows, args.logits.cols);
  check_f32(check, "lse", args.lse, {args.logits.rows, 1});
}

void check_reduction(const char* operation, DType sum, const View& out, const View& inp) {
  const Checker check{operation};
  check_values(check, "inp", inp);
  check.type("out", out, {sum});
  check.shape("out", out, 1, 1);
}

void check_clip_factor(const View& out, const View& squared_norm) {
  const Checker check{"clip_factor"};
  check_f32(check, "out", out, {1, 1});
  check.type("squared_norm", squared_norm, {DType::f64});
  check.shape("squared_norm", squared_norm, 1, 1);
}

void check_adamw(const AdamWUpdate& args) {
  const Checker check{"adamw"};
  check_step(check, args);
  check_f32(check, "first", args.first, {1, args.master.cols});
  check_f32(check, "second", args.second, {1, args.master.cols});
  AXONN_CHECK(args.step >= 1, "adamw: step ", args.step, ", want 1 or more");
}

void check_sgd(const SgdUpdate& args) { check_step({"sgd"}, args); }

void check_attention(const char* operation, const Attention& args) {
  const Checker check{operation};
  const std::int64_t rows = args.q.rows, D = args.head_dim;
  AXONN_CHECK(args.positions > 0 && rows % args.positions == 0, operation, ": ", rows,
              " rows, want whole sequences of ", args.positions, " positions");
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
  check.compute_type("q", args.q);
  check.shape("q", args.q, rows, args.heads * D);
  for (const auto& [name, view] : {std::pair{"k", &args.k}, {"v", &args.v}}) {
    check.type(name, *view, {args.q.dtype});
    check.shape(name, *view, rows, args.k.cols);
  }
  check_like(check, "out", args.out, args.q);
  if (args.starts.data) check_ids(check, "starts", args.starts, rows);
  check_f32(check, "stats", args.stats, {rows, args.heads});
}

void check_attention_backward(const AttentionBackward& args) {
  check_attention("attention_backward", args.forward);
  const Checker check{"attention_backward"};
  check_like(check, "d_out", args.d_out, args.forward.q);
  check_like(check, "d_q", args.d_q, args.forward.q);
  check_like(check, "d_k", args.d_k, args.forward.k);
  check_like(check, "d_v", args.d_v, args.forward.k);
}

void check_keep_heads(const KeepHeads& args) {
  const Checker check{"keep_heads"};
  const std::int64_t D = args.kept.cols;
  check_values(check, "inp", args.inp);
  check.type("kept", args.kept, {args.inp.dtype});
  AXONN_CHECK(args.entries > 0 && D > 0 && args.inp.cols % D == 0 &&
                  args.kept.rows % std::max<std::int64_t>(1, args.inp.cols / D * args.entries) == 0,
              "keep_heads: inp ", args.inp, ", kept ", args.kept,
              ", want whole heads in inp, and whole slots of ", args.entries,
              " entries for each of them in kept");
  check_ids(check, "slots", args.slots, args.inp.rows);
  check_ids(check, "positions", args.positions, args.inp.rows);
}

void check_cached_attention(const CachedAttention& args) {
  const char* operation = "cached_attention";
  const Checker check{operation};
  const std::int64_t rows = args.q.rows, D = args.head_dim;
  AXONN_CHECK(args.entries > 0 && args.kv_heads > 0 && D > 0 && args.group > 0 &&
                  args.first_query >= 0 && args.first_query < args.group && args.window >= 0 &&
                  args.first_query + args.heads <= args.kv_heads * args.group,
              operation,
              ": want sizes above 0 and query heads in the groups of the key-value heads, got ",
              args.heads, " heads of width ", D, " over ", args.kv_heads,
              " key-value heads, group ", args.group, ", first_query ", args.first_query,
              ", slots of ", args.entries, " entries, window ", args.window);
  check.compute_type("q", args.q);
  check.shape("q", args.q, rows, args.heads * D);
  check.type("out", args.out, {args.q.dtype});
  check.shape("out", args.out, rows, args.heads * D);
  for (const auto& [name, view] : {std::pair{"keys", args.keys}, {"values", args.values}}) {
    check.type(name, view, {args.q.dtype});
    check.shape(name, view, args.keys.rows, D);
    AXONN_CHECK(view.contiguous() && view.rows % (args.kv_heads * args.entries) == 0, operation,
                ": ", name, " is ", view, ", want whole slots of ", args.kv_heads, " heads of ",
                args.entries, " entries, one after another");
  }
  check_ids(check, "slots", args.slots, rows);
  check_ids(check, "positions", args.positions, rows);
}

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

void Checker::compute_type(std::string_view name, const View& view) const {
  type(name, view, {DType::f32, DType::bf16});
}

}  // namespace axonn
