#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "axonn/compute/ops/delta_operations.h"
#include "axonn/compute/ops/expert_operations.h"
#include "axonn/compute/ops/loss_operations.h"
#include "axonn/compute/ops/norm_operations.h"
#include "axonn/compute/ops/optimizer_operations.h"
#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/tensor.h"

// The table of the row-wise operations: all that a Backend computes besides products and attention.
// An operation is a struct of its arguments, passed to Backend::run(). It has:
//
//   kName         its name in traces, schedules, machine files and messages
//   operands()    all its matrices, results first; one that the caller left out is empty
//   run(...)      checks the operands, chooses the element types and launches the kernels; defined
//                 beside these in ops/rowwise/ and instantiated in ops/cpu/ and ops/gpu/; `check`
//                 has its name for messages
//   kKind         if it is not OperationKind::rowwise
//   kAlsoWrites   a bit for each operand besides the first that it writes, if there are any
//   passes()      how often it reads or writes each operand, if that is not once
//
// A View documented as T is f32, bf16 or f16; no operation has both bf16 and f16. Gradients of
// parameters are f32 and are added to (+=); everything else is overwritten (=). Every sum has a
// fixed order, whatever the number of threads.
//
// The names are those of layers, too, so they are always written with their namespace: ops::Add.
namespace axonn {

struct Checker;

/// Positions that stay together when the positions of sequences are divided among ranks: what
/// kernels of attention compute at once, so that no result depends on the division.
inline constexpr std::int64_t kSequenceBlock = 64;

namespace ops {

/// Rotary position embedding of the first D columns of each head: column i is paired with column
/// i + D/2, or column 2i with 2i + 1. Other columns are copied.
struct RotaryEmbedding {
  View out;                   ///< (R, h·head_dim), may be inp
  View inp;                   ///< (R, h·head_dim)
  View table;                 ///< (T, D) f32: cosines, then sines, of a position's D/2 angles
  bool inverse = false;       ///< rotates by the opposite angles, as the gradient needs
  View positions = {};        ///< (1, R) i32, below T; or empty: row r has position r % T
  std::int64_t head_dim = 0;  ///< 0: D
  bool neighbours = false;    ///< whether pairs are neighbours

  static constexpr std::string_view kName = "rotary_embedding";
  auto operands() const { return std::array{out, inp, table, positions}; }
  void run(auto launch, const Checker& check) const;
};

/// Writes the keys, or the values, of new tokens to the key-value cache. A slot has room for
/// `entries` positions of one sequence, one head after another; position p is at entry
/// p % entries. Row r is position positions[r] of slot slots[r]; negative slots are skipped.
struct KeepHeads {
  View kept;       ///< (slots · k · entries, D); or HeadCodes::bytes(D) columns of u8: codes
  View inp;        ///< (R, k·D)
  View slots;      ///< (1, R) i32
  View positions;  ///< (1, R) i32
  std::int64_t entries = 0;
  std::int64_t head_dim = 0;  ///< D; 0: the columns of `kept`, which then has no codes

  static constexpr std::string_view kName = "keep_heads";
  auto operands() const { return std::array{kept, inp, slots, positions}; }
  void run(auto launch, const Checker& check) const;
};

/// Rounds heads of D columns to the values that KeepHeads keeps of them as codes.
struct RoundHeads {
  View out;  ///< (R, k·D), may be inp
  View inp;  ///< (R, k·D)
  std::int64_t head_dim = 0;

  static constexpr std::string_view kName = "round_heads";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// The first position of its sequence that each row sees if attention stays within chunks: where
/// the chunk of its document that has the row begins. Source: Meta's Llama 4, 2025.
struct ChunkStarts {
  View out;             ///< (1, R) i32
  View positions = {};  ///< (1, R) i32, within documents; empty: row r has r % length
  View starts = {};     ///< (1, R) i32, where documents begin; empty: at 0
  View blocks = {};  ///< (1, R / kSequenceBlock) i32: where blocks of rows are in theirs, or empty
  std::int64_t chunk;   ///< positions of a chunk
  std::int64_t length;  ///< of a sequence: without blocks row r is at r % length

  static constexpr std::string_view kName = "chunk_starts";
  auto operands() const { return std::array{out, positions, starts, blocks}; }
  void run(auto launch, const Checker& check) const;
};

/// Copies columns of heads: for each of `heads` heads h the `width` columns of inp from
/// h · inp_step on to those of out from h · out_step on. inp_step 0: all heads get the same.
/// out_step 0: out (R, width) gets the sum of all heads, in their order.
struct CopyHeads {
  View out, inp;  ///< (R, ·) T
  std::int64_t heads = 0, width = 0;
  std::int64_t out_step = 0, inp_step = 0;

  static constexpr std::string_view kName = "copy_heads";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// Attention sinks: a score of each head beside those of the keys that has no value. Multiplies
/// attention's out by the share of the softmax that keys have with it. Sources: Xiao et al.,
/// "Efficient streaming language models with attention sinks", 2024; "gpt-oss model card", 2025.
struct AddSinks {
  View out;    ///< (R, h·D) T, scaled in place
  View total;  ///< (R, h) f32 = log of the sum of exponentials with the sink; not stats
  View stats;  ///< (R, h) f32: the same without, as attention returns it
  View sinks;  ///< (1, h) W, f32, bf16 or f16

  static constexpr std::string_view kName = "add_sinks";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{out, total, stats, sinks}; }
  void run(auto launch, const Checker& check) const;
};

/// The summands of the gradients of sinks: -e^(sink - total) · (the sum of d_out · out over the
/// head's columns). The other gradients are those of attention with `total` as its stats.
struct SinkTerms {
  View terms;       ///< (R, h) f32
  View d_out, out;  ///< (R, h·D) T, after AddSinks
  View total;       ///< (R, h) f32
  View sinks;       ///< (1, h) W, f32, bf16 or f16

  static constexpr std::string_view kName = "sink_terms";
  auto operands() const { return std::array{terms, d_out, out, total, sinks}; }
  void run(auto launch, const Checker& check) const;
};

/// Moves blocks of kSequenceBlock rows between pieces of sequences, as an all-gather stacks them,
/// and the order of positions. The rows of both matrices are `sequences` sequences of T positions.
/// Ordered, row b · T + t is position t of sequence b. Stacked, there is one piece after another,
/// each with T / ways rows of every sequence, one sequence after another. Counted over all pieces,
/// block slots[b · T/64 + j] of sequence b's rows is block j of its positions.
struct OrderBlocks {
  View out;                    ///< (R, C) T, ordered
  View inp;                    ///< (R, C) T, stacked; not out
  View slots;                  ///< (1, R/64) i32: for each sequence a permutation of 0 to T/64 - 1
  std::int64_t sequences = 0;  ///< at least 1
  int ways = 1;                ///< pieces; T is a multiple of ways · kSequenceBlock
  bool inverse = false;        ///< inp is ordered, and out stacked

  static constexpr std::string_view kName = "order_blocks";
  auto operands() const { return std::array{out, inp, slots}; }
  void run(auto launch, const Checker& check) const;
};

/// Where rows of sequences of two branches lie if each sequence becomes two, of one branch each:
/// the first has the rows in their order; the second has those that both branches begin with, then
/// the second branch, then all others. Each row has a copy in either, R rows of sequences of T.
struct BranchCopies {
  View copy_rows;  ///< (R, 2) i32: of the copies among 2·R rows, those of a sequence together
  View weights;   ///< (R, 2) f32: 1 for the copy that lies in the row's own branch, 0 for the other
  View starts;    ///< (1, 2·R) i32: the first position that a copy sees: 0 in its own branch, or
                  ///< its own position if it lies in the other one, or in none
  View branches;  ///< (1, 3·B) i32: of each sequence the number of rows that both branches begin
                  ///< with, the row where the second branch goes on, and the row after its end

  static constexpr std::string_view kName = "branch_copies";
  static constexpr std::uint32_t kAlsoWrites = 0b110;
  auto operands() const { return std::array{copy_rows, weights, starts, branches}; }
  void run(auto launch, const Checker& check) const;
};

/// What the gate of a gated linear unit goes through.
enum class GateKind {
  silu,
  gelu,  ///< its tanh form
  clamped,
};

/// f of a gated linear unit: silu(gate) · up, gelu(gate) · up, or, as in gpt-oss,
///
///   clamped   g · sigmoid(alpha · g) · (u + 1), g = min(gate, limit), u = up within -limit and
///             limit
struct Gate {
  GateKind kind = GateKind::silu;
  float alpha = 1, limit = 0;  ///< of clamped
};

/// out (R, F) T = f(gate, up); each row of inp (R, 2F) is its gate, then its up.
struct Swiglu {
  View out, inp;
  Gate gate = {};

  static constexpr std::string_view kName = "swiglu";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// d_inp (R, 2F), which may be inp.
struct SwigluBackward {
  View d_inp, d_out, inp;
  Gate gate = {};

  static constexpr std::string_view kName = "swiglu_backward";
  auto operands() const { return std::array{d_inp, d_out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// The expanded integral of ELU with two learned numbers p and n, see rowwise/xielu.h. (R, C) T.
struct Xielu {
  View out, inp;
  View p, n;  ///< (1, 1) W, f32, bf16 or f16

  static constexpr std::string_view kName = "xielu";
  auto operands() const { return std::array{out, inp, p, n}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradients of Xielu; forward.out is not read.
struct XieluBackward {
  Xielu forward;
  View d_inp;  ///< (R, C), may be d_out
  View d_out;  ///< (R, C)
  /// (R, 2) f32: receives each row's terms of d_p and d_n; or empty, and so are d_p and d_n.
  View sums = {};
  View d_p = {}, d_n = {};  ///< (1, 1) f32, added to

  static constexpr std::string_view kName = "xielu_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b1110;
  auto operands() const {
    return std::array{d_inp, sums, d_p, d_n, d_out, forward.inp, forward.p, forward.n};
  }
  void run(auto launch, const Checker& check) const;
};

/// Sets elements of a piece of a value to 0 at random. The choice depends only on the key and on
/// the element's index in the whole value.
struct Dropout {
  View out;                    ///< (R, C) T, may be inp
  View inp;                    ///< (R, C) T
  float scale = 1;             ///< kept elements are multiplied by scale / (1 - probability)
  float probability = 0;       ///< that an element is set to 0
  std::uint64_t key = 0;       ///< a different key makes a different choice
  std::int64_t first_row = 0;  ///< of element (0, 0) in the whole value
  std::int64_t first_col = 0;

  static constexpr std::string_view kName = "dropout";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// Tanh form of GELU (Hendrycks and Gimpel, 2016), as GPT-2 uses. (R, C) T.
struct Gelu {
  View out, inp;

  static constexpr std::string_view kName = "gelu";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

struct GeluBackward {
  View d_inp, d_out, inp;

  static constexpr std::string_view kName = "gelu_backward";
  auto operands() const { return std::array{d_inp, d_out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out = a + b, (R, C); types may differ (sums in f32).
struct Add {
  View out, a, b;

  static constexpr std::string_view kName = "add";
  auto operands() const { return std::array{out, a, b}; }
  void run(auto launch, const Checker& check) const;
};

/// A function of each element alone.
enum class ActivationKind {
  relu,  ///< max(x, 0)
  silu,  ///< x / (1 + e^-x)
  tanh,
  relu2,  ///< max(x, 0)²
  sigmoid,
};

/// out = f(inp), (R, C) T.
struct Activation {
  View out;  ///< (R, C), may be inp
  View inp;  ///< (R, C)
  ActivationKind kind = ActivationKind::relu;

  static constexpr std::string_view kName = "activation";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// d_inp = d_out · f'(inp), (R, C) T. The slope of relu is 0 at 0.
struct ActivationBackward {
  View d_inp;  ///< (R, C), may be d_out or inp
  View d_out, inp;
  ActivationKind kind = ActivationKind::relu;

  static constexpr std::string_view kName = "activation_backward";
  auto operands() const { return std::array{d_inp, d_out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out = a · b, (R, C) T, elementwise; out may be a or b.
struct Multiply {
  View out, a, b;

  static constexpr std::string_view kName = "multiply";
  auto operands() const { return std::array{out, a, b}; }
  void run(auto launch, const Checker& check) const;
};

/// out = inp · factor, (R, C) T; out may be inp.
struct Scale {
  View out, inp;
  float factor = 1;

  static constexpr std::string_view kName = "scale";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, C) T = inp · number, which may be inp.
struct ScaleByNumber {
  View out, inp;
  View number;  ///< (1, 1) W, f32, bf16 or f16

  static constexpr std::string_view kName = "scale_by_number";
  auto operands() const { return std::array{out, inp, number}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, C) T = cap · tanh(inp / cap), which may be inp; cap is above 0.
struct SoftCap {
  View out, inp;
  float cap = 1;

  static constexpr std::string_view kName = "soft_cap";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// d_inp (R, C) T = d_out · (1 - (out / cap)²), which may be d_out; out is f32, bf16 or f16.
struct SoftCapBackward {
  View d_inp, d_out, out;
  float cap = 1;

  static constexpr std::string_view kName = "soft_cap_backward";
  auto operands() const { return std::array{d_inp, d_out, out}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, C) f32 = inp + number; inp is f32, bf16 or f16.
struct AddNumber {
  View out, inp;
  float number = 0;

  static constexpr std::string_view kName = "add_number";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out = inp, (R, C), from f32, bf16 or f16 to the same or to f32, or from f32 to any of them.
struct Cast {
  View out, inp;

  static constexpr std::string_view kName = "cast";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, n) T = the values of records (QuantizedForm), n a multiple of aligned(form.kind).
struct Dequantize {
  View out;      ///< (1, n) T
  View records;  ///< (1, form.bytes(n)) u8
  QuantizedForm form;

  static constexpr std::string_view kName = "dequantize";
  auto operands() const { return std::array{out, records}; }
  void run(auto launch, const Checker& check) const;
};

/// Rows of a table of tokens that is kept as codes.
struct DequantizeRows {
  View out;                 ///< (R, C) T, C a multiple of the form's unit
  View ids;                 ///< (1, R) i32
  View records;             ///< (1, form.bytes(V · C)) u8, row after row of the table
  QuantizedForm form = {};  ///< of the records
  std::int64_t first = 0;   ///< rows are those of ids [first, first + V); other ids give zeros

  static constexpr std::string_view kName = "dequantize_rows";
  auto operands() const { return std::array{out, ids, records}; }
  /// Of the table, fewer bytes are read than out has.
  auto passes() const { return std::array{2, 0, 0}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, C) f32 += sum over rows of inp (R, C) T.
struct ColumnSum {
  View out, inp;

  static constexpr std::string_view kName = "column_sum";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// Rows of a table of tokens, plus rows of learned positions if there are any.
struct Embedding {
  View out;    ///< (R, C) T
  View ids;    ///< (1, R) i32
  View table;  ///< (V, C) T: rows of ids [first, first + V); other ids give zeros
  std::int64_t first = 0;
  View learned = {};    ///< (P, C) T, added; or empty
  View positions = {};  ///< (1, R) i32, below P; or empty: row r has position r % P

  static constexpr std::string_view kName = "embedding";
  auto operands() const { return std::array{out, ids, table, learned, positions}; }
  /// Of the table, as many rows are read as out has.
  auto passes() const { return std::array{2, 0, 0, 0, 0}; }
  void run(auto launch, const Checker& check) const;
};

/// d_table (V, C) f32 += d_out rows, in the order of the rows.
struct EmbeddingBackward {
  View d_table;  ///< rows of ids [first, first + V); other ids are skipped
  View d_out;    ///< (R, C) T
  View ids;      ///< (1, R) i32
  std::int64_t first = 0;

  static constexpr std::string_view kName = "embedding_backward";
  auto operands() const { return std::array{d_table, d_out, ids}; }
  /// Of d_table, as many rows are read and written as d_out has.
  auto passes() const {
    return std::array{0, static_cast<int>(1 + 2 * bytes_of(DType::f32) / bytes_of(d_out.dtype)), 0};
  }
  void run(auto launch, const Checker& check) const;
};

/// d_positions (T, C) f32 += sum over sequences of d_out (B·T, C). For rows with explicit positions
/// take EmbeddingBackward instead, with the positions as ids.
struct PositionsBackward {
  View d_positions, d_out;

  static constexpr std::string_view kName = "positions_backward";
  auto operands() const { return std::array{d_positions, d_out}; }
  void run(auto launch, const Checker& check) const;
};

/// A piece of the softmax of each row: out (R, C) T = exp(inp - maximum) / sum of exponentials,
/// over all pieces.
struct Softmax {
  View out;    ///< (R, C), may be inp
  View inp;    ///< (R, C)
  View stats;  ///< (pieces · R, 2) f32: the SoftmaxStats of all pieces, stacked

  static constexpr std::string_view kName = "softmax";
  auto operands() const { return std::array{out, inp, stats}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 1) f32 = sum over each row of a · b, both (R, C) T.
struct RowDots {
  View out, a, b;

  static constexpr std::string_view kName = "row_dots";
  auto operands() const { return std::array{out, a, b}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradient of a piece of Softmax: d_inp = out · (d_out - dots).
struct SoftmaxBackward {
  View d_inp;  ///< (R, C) T, may be d_out or out
  View d_out;  ///< (R, C) T
  View out;    ///< (R, C) T, the result of Softmax
  View dots;   ///< (R, 1) f32: RowDots of d_out and out, summed over all pieces

  static constexpr std::string_view kName = "softmax_backward";
  auto operands() const { return std::array{d_inp, d_out, out, dots}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) f64 += sum of inp (R, C) T.
struct Sum {
  View out, inp;

  static constexpr std::string_view kName = "sum";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) f64 += sum of squares of inp (R, C) T.
struct SquaredSum {
  View out, inp;

  static constexpr std::string_view kName = "squared_sum";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) f64 += sum of (|inp| / sqrt(squared_norm))^p over inp (R, C) T, 0 where squared_norm
/// (1, 1) f64 is: the quotients are at most 1, so no power overflows.
struct PowerSum {
  View out, inp, squared_norm;
  double p = 2;

  static constexpr std::string_view kName = "power_sum";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp, squared_norm}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) f64 = the largest of out and the sizes of inp (R, C) T; ignores NaN.
struct LargestSize {
  View out, inp;

  static constexpr std::string_view kName = "largest_size";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) f32 = min(1, max_norm / norm), 1 where max_norm is 0; norm = sqrt(squared_norm).
/// With `sum`, norm = sqrt(squared_norm) · sum^(1/p), where sum is that of PowerSum; with p =
/// infinity, norm = sum, that of LargestSize. squared_norm and sum (1, 1) f64.
struct ClipFactor {
  View out, squared_norm;
  float max_norm = 0;
  View sum = {};
  double p = 2;

  static constexpr std::string_view kName = "clip_factor";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, squared_norm, sum}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, 1) i64 += elements of inp (R, C) T that are NaN or infinite.
struct CountNonfinite {
  View out, inp;

  static constexpr std::string_view kName = "count_nonfinite";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

/// Any row-wise operation.
using RowwiseOperation = std::variant<
    ops::RowMoments, ops::AddMoments, ops::CombineMoments, ops::MomentsAboutZero, ops::LayerNorm,
    ops::NormForward, ops::LayerNormSums, ops::LayerNormBackward, ops::LayerNormWeightBackward,
    ops::RmsNormSums, ops::NormBackward, ops::HeadNorm, ops::HeadNormBackward, ops::RotaryEmbedding,
    ops::Transpose, ops::CausalConvolution, ops::CausalConvolutionWeights, ops::DeltaGates,
    ops::DeltaGatesBackward, ops::DeltaRule, ops::DeltaRuleBackward, ops::KeepHeads,
    ops::RoundHeads, ops::ChunkStarts, ops::CopyHeads, ops::AddSinks, ops::SinkTerms,
    ops::OrderBlocks, ops::BranchCopies, ops::Swiglu, ops::SwigluBackward, ops::Xielu,
    ops::XieluBackward, ops::Dropout, ops::Gelu, ops::GeluBackward, ops::Add, ops::Activation,
    ops::ActivationBackward, ops::Multiply, ops::Scale, ops::AddNumber, ops::ScaleByNumber,
    ops::SoftCap, ops::SoftCapBackward, ops::Cast, ops::Dequantize, ops::DequantizeRows,
    ops::ColumnSum, ops::Route, ops::RouteBackward, ops::RouteCounts, ops::ExpertOrder,
    ops::ExpertFactors, ops::ExpertFactorTerms, ops::SpreadRows, ops::CombineRows,
    ops::CombineRowsBackward, ops::Embedding, ops::EmbeddingBackward, ops::PositionsBackward,
    ops::SoftmaxStats, ops::CombineSoftmax, ops::CrossEntropyBackward, ops::CrossEntropy,
    ops::GreedyTargets, ops::TokenRecord, ops::KthLargestLogit, ops::PolicyLogProbability,
    ops::EntropyTerms, ops::DivergenceTerms, ops::DivergenceTail, ops::DivergenceBackward,
    ops::Softmax, ops::RowDots, ops::SoftmaxBackward, ops::Sum, ops::SquaredSum, ops::PowerSum,
    ops::LargestSize, ops::ClipFactor, ops::CountNonfinite, ops::AdamW, ops::Sgd, ops::Lion,
    ops::ScheduleFreeAdamW, ops::AddSquares, ops::AdafactorSquares, ops::Adafactor, ops::Clamp,
    ops::Momentum, ops::DivideByNorm, ops::WeightedSum, ops::WordSums, ops::MovingAverage,
    ops::EncodeDynamic, ops::DecodeDynamic, ops::RoundAtRandom>;

/// The names of all row-wise operations.
inline constexpr auto kRowwiseNames =
    []<typename... Operation>(std::type_identity<std::variant<Operation...>>) {
      return std::array{Operation::kName...};
    }(std::type_identity<RowwiseOperation>{});

}  // namespace axonn
