// Causal attention by products and one kernel between them, for operands that neither cuDNN nor
// flash_attention.cuh supports: scores = Q·Kᵀ, softmax, P·V.
//
// A part is one sequence, one member of every group of query heads, and one block of queries, as
// few as CudaOptions::attention_bytes needs (attention_parts.h). Keys that no query of the block
// sees are left out: where Attention::query_blocks is set, those that none can see wherever the
// blocks lie, because the host does not read it. The heads of a part lie at equal distances,
// (group · D) for queries and D for keys, so one batched product computes them all. Scores and
// their gradients are f32; operands of a further product are rounded to the operands' type, like
// the tensors of a model. Gradients of keys and values are summed in f32 over blocks and members,
// in their order.
//
// Bound by the products; besides, scores go through memory, 3 times forward and 7 times backward.
#include <cmath>

#include "axonn/compute/ops/gpu/attention/attention_parts.h"
#include "axonn/compute/ops/gpu/cuda_backend.cuh"
#include "axonn/compute/ops/gpu/launch.cuh"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cuda {

namespace {

/// The scores of a part, one head after another: (heads · rows, stride).
template <typename T>
struct Scores {
  float* scores;  // (heads · rows, keys), scaled, not capped
  T* out;         // the same shape; may be `scores`
  AttentionPart part;
  std::int64_t group, window;
  float cap;
  Matrix<float> stats;               // (B·Tq, h)
  const std::int32_t* starts;        // (B·Tq), or null
  const std::int32_t* query_blocks;  // (B·Tq/64), or null

  Scores(const Attention& args, const AttentionPart& of, float* all, T* results)
      : scores(all),
        out(results),
        part(of),
        group(args.group),
        window(args.window),
        cap(args.cap),
        stats(args.stats),
        starts(address<const std::int32_t>(args.starts)),
        query_blocks(address<const std::int32_t>(args.query_blocks)) {}

  /// Columns [begin, end) that a row's query sees.
  struct Seen {
    std::int64_t begin, end;
  };
  __device__ Seen seen(std::int64_t row) const {
    const std::int64_t at = tensor_row(row),
                       query = query_blocks ? query_blocks[at / kSequenceBlock] * kSequenceBlock +
                                                  at % kSequenceBlock
                                            : at - part.first_row;
    std::int64_t oldest = window > 0 && query >= window ? query - window + 1 : 0;
    if (starts && starts[at] > oldest) oldest = starts[at];
    return {oldest > part.key ? oldest - part.key : 0, query + 1 - part.key};
  }
  __device__ std::int64_t tensor_row(std::int64_t row) const {
    return part.first_row + part.query + rowwise::row_remainder(row, part.rows);
  }
  __device__ std::int64_t head(std::int64_t row) const {
    return part.head + rowwise::row_quotient(row, part.rows) * group;
  }
  __device__ float capped(float score) const {
    return cap > 0 ? rowwise::Capped{cap}(score) : score;
  }
  /// Sets the columns that the query does not see to zero.
  __device__ void clear(const Team& team, T* to, Seen seen) const {
    team.map(to, static_cast<int>(seen.begin), [] { return 0.0f; });
    team.map(to + seen.end, static_cast<int>(part.keys - seen.end), [] { return 0.0f; });
  }
};

template <typename T>
struct SoftmaxForward {
  Scores<T> of;

  __device__ void operator()(const Team& team, std::int64_t row) const {
    const auto seen = of.seen(row);
    const int count = static_cast<int>(seen.end - seen.begin);
    const float* x = of.scores + row * of.part.stride + seen.begin;
    T* y = of.out + row * of.part.stride;
    const float most = of.capped(team.max(count, x));
    const auto term = [=, this](float v) { return rowwise::exponential(of.capped(v) - most); };
    const float total = team.sum(count, term, x), factor = 1 / total;
    team.map(
        y + seen.begin, count, [=](float v) { return term(v) * factor; }, x);
    of.clear(team, y, seen);
    team.once([&] { of.stats.row(of.tensor_row(row))[of.head(row)] = most + std::log(total); });
  }
};

/// P = exp(scores - lse), d_scores = P · (d_P - delta) · scale, delta = sum of d_out · out.
template <typename T>
struct SoftmaxBackward {
  Scores<T> of;                // out becomes P
  float* d_probabilities;      // (heads · rows, keys)
  T* d_scores;                 // the same shape; may be d_probabilities
  Matrix<const T> d_out, out;  // (B·Tq, h·D)
  int D;
  float scale;

  __device__ void operator()(const Team& team, std::int64_t row) const {
    const auto seen = of.seen(row);
    const int count = static_cast<int>(seen.end - seen.begin);
    const std::int64_t at = row * of.part.stride, place = of.tensor_row(row), head = of.head(row);
    const float delta = team.sum(
        D, [](float a, float b) { return a * b; }, d_out.row(place) + head * D,
        out.row(place) + head * D);
    const float lse = of.stats.row(place)[head], factor = scale;
    team.map_pair(
        of.out + at + seen.begin, d_scores + at + seen.begin, count,
        [=, this](float s, float d) {
          const float capped = of.capped(s), p = rowwise::exponential(capped - lse);
          const float d_s = p * (d - delta) * factor;
          return rowwise::pair(p, of.cap > 0 ? rowwise::CappedGradient{of.cap}(d_s, capped) : d_s);
        },
        of.scores + at + seen.begin, d_probabilities + at + seen.begin);
    of.clear(team, of.out + at, seen);
    of.clear(team, d_scores + at, seen);
  }
};

/// A part's views of tensors, as operands of batched products: those of its first head.
struct Windows {
  const Attention& args;
  const AttentionPart& part;

  /// Rows of q, out or their gradients.
  View queries(const View& all) const {
    return all.row_range(part.first_row + part.query, part.rows)
        .col_range(part.head * args.head_dim, args.head_dim);
  }
  std::int64_t query_step() const { return args.group * args.head_dim; }
  /// Rows of keys, values or their gradients.
  View keys(const View& all) const {
    return all.row_range(part.first_key + part.key, part.keys)
        .col_range(part.kv_head * args.head_dim, args.head_dim);
  }
  std::int64_t key_step() const { return args.head_dim; }
  View scores(void* data, DType dtype) const {
    return {data, dtype, part.rows, part.keys, part.stride};
  }
  std::int64_t score_step() const { return part.rows * part.stride; }

  /// scores = scale · x · yᵀ over the heads' columns.
  BatchedMatmul across(const View& scores, const View& x, const View& y, float scale) const {
    return {.one = {.out = scores, .a = queries(x), .b = keys(y), .b_transposed = true},
            .scale = scale,
            .count = part.heads,
            .out_step = score_step(),
            .a_step = query_step(),
            .b_step = key_step()};
  }
  /// out = scores · y, the results for queries.
  BatchedMatmul to_queries(const View& out, const View& scores, const View& y) const {
    return {.one = {.out = queries(out), .a = scores, .b = keys(y)},
            .count = part.heads,
            .out_step = query_step(),
            .a_step = score_step(),
            .b_step = key_step()};
  }
  /// sums (T, k·D) of this sequence += scoresᵀ · x, the gradients of keys or values.
  BatchedMatmul to_keys(const View& sums, const View& scores, const View& x) const {
    const View out =
        sums.row_range(part.key, part.keys).col_range(part.kv_head * args.head_dim, args.head_dim);
    return {
        .one = {.out = out, .a = scores, .b = queries(x), .a_transposed = true, .accumulate = true},
        .count = part.heads,
        .out_step = key_step(),
        .a_step = score_step(),
        .b_step = query_step()};
  }
};

template <typename T>
constexpr bool kRounds = sizeof(T) < sizeof(float);  // P needs memory of its own

}  // namespace

void CudaBackend::attention_in_parts(const Attention& args, const AttentionParts& sizes,
                                     char* memory) {
  with_type(args.q.dtype, [&]<typename T>(T) {
    auto* scores = reinterpret_cast<float*>(memory);
    T* rounded = reinterpret_cast<T*>(kRounds<T> ? scores + sizes.scores : scores);
    Scratch none(arena_);
    const Launch launch{stream(), none};
    for (std::int64_t sequence = 0; sequence < args.sequences(); ++sequence)
      for_parts(args, sequence, sizes.queries, [&](const AttentionPart& part) {
        const Windows windows{args, part};
        const View s = windows.scores(scores, DType::f32),
                   p = windows.scores(rounded, args.q.dtype);
        products_.run(windows.across(s, args.q, args.k, args.scale));
        launch.rows({part.heads * part.rows, part.keys},
                    SoftmaxForward<T>{Scores<T>(args, part, scores, rounded)});
        products_.run(windows.to_queries(args.out, p, args.v));
      });
  });
}

void CudaBackend::attention_in_parts(const AttentionBackward& args, const AttentionParts& sizes,
                                     char* memory) {
  const Attention& a = args.forward;
  const std::int64_t sums = a.positions * a.k.cols;
  with_type(a.q.dtype, [&]<typename T>(T) {
    auto* d_keys = reinterpret_cast<float*>(memory);
    float *d_values = d_keys + sums, *scores = d_values + sums,
          *d_probabilities = scores + sizes.scores;
    T* rounded = reinterpret_cast<T*>(kRounds<T> ? d_probabilities + sizes.scores : scores);
    T* d_scores = kRounds<T> ? rounded + sizes.scores : reinterpret_cast<T*>(d_probabilities);
    const View d_k{d_keys, DType::f32, a.positions, a.k.cols, a.k.cols},
        d_v{d_values, DType::f32, a.positions, a.k.cols, a.k.cols};
    Scratch none(arena_);
    const Launch launch{stream(), none};
    for (std::int64_t sequence = 0; sequence < a.sequences(); ++sequence) {
      device_->fill_zero(d_keys, 2 * sums * static_cast<std::int64_t>(sizeof(float)));
      if (a.heads > 0)
        for_parts(a, sequence, sizes.queries, [&](const AttentionPart& part) {
          const Windows windows{a, part};
          const View p = windows.scores(rounded, a.q.dtype),
                     d_s = windows.scores(d_scores, a.q.dtype);
          products_.run(windows.across(windows.scores(scores, DType::f32), a.q, a.k, a.scale));
          products_.run(
              windows.across(windows.scores(d_probabilities, DType::f32), args.d_out, a.v, 1));
          launch.rows(
              {part.heads * part.rows, part.keys},
              SoftmaxBackward<T>{Scores<T>(a, part, scores, rounded), d_probabilities, d_scores,
                                 args.d_out, a.out, static_cast<int>(a.head_dim), a.scale});
          products_.run(windows.to_queries(args.d_q, d_s, a.k));
          products_.run(windows.to_keys(d_v, p, args.d_out));
          products_.run(windows.to_keys(d_k, d_s, a.q));
        });
      const std::int64_t first = sequence * a.positions;
      run(ops::Cast{args.d_k.row_range(first, a.positions), d_k});
      run(ops::Cast{args.d_v.row_range(first, a.positions), d_v});
    }
  });
}

}  // namespace axonn::cuda
