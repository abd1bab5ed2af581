#include "axonn/compute/ops/gpu/attention/attention_ways.h"

#include <algorithm>
#include <utility>

#include "axonn/compute/ops/gpu/attention/attention_parts.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

namespace {

/// Older versions of cuDNN need other numbers for hidden scores, and sums that the caller clears.
constexpr int kOldestCudnn = 91000, kOrderedCudnn = 92500;

/// The widest head that cuDNN's guide lists for both passes on every GPU; some wider ones work.
constexpr std::int64_t kWidestHead = 128;

/// Attention, or its gradients if `backward` is set.
struct AttentionPass {
  const AttentionBackward& args;
  bool backward;

  const Attention& forward() const { return args.forward; }
  std::vector<AttentionGraphShape> shapes(bool ordered) const {
    return backward ? graph_shapes_of(args, ordered) : graph_shapes_of(args.forward);
  }
};

AttentionOffer refused(AttentionWay way, std::string why) {
  return {.way = way, .why_not = std::move(why)};
}

/// One key-value head of one sequence, with its queries.
AttentionGraphShape one_head(AttentionGraphShape shape) {
  shape.heads /= shape.kv_heads;
  shape.sequences = shape.kv_heads = 1;
  return shape;
}

/// Ordered gradients in runs of queries, one key-value head of one sequence at a time, so that each
/// takes at most `bytes`. None if that would be too many runs: cuDNN takes half a second to compile
/// the graph of each.
std::vector<AttentionGraphShape> in_runs(const AttentionGraphShape& shape, std::int64_t bytes) {
  constexpr std::int64_t kTile = 128, kFewest = 1024, kMostRuns = 32;
  AttentionGraphShape one = one_head(shape);
  one.adds_keys = true;
  one.d_k_stride = one.d_v_stride = 0;
  for (std::int64_t each = shape.queries / 2; each >= kFewest; each /= 2) {
    each = (each + kTile - 1) / kTile * kTile;
    std::vector<AttentionGraphShape> runs;
    for (std::int64_t begin = 0; begin < shape.queries; begin += each) {
      AttentionGraphShape& run = runs.emplace_back(one);
      run.first_position += begin;
      run.queries = std::min(each, shape.queries - begin);
    }
    if (std::ssize(runs) > kMostRuns) break;
    const auto fits = [&](const auto& run) { return graph_bytes(run).total() <= bytes; };
    if (std::ranges::all_of(runs, fits)) return runs;
  }
  return {};
}

AttentionOffer cudnn_offer(AttentionWay way, const AttentionPass& of, const AttentionRules& rules) {
  const bool ordered = rules.options.deterministic && of.backward && way == AttentionWay::cudnn;
  AttentionOffer offer{.way = way};
  const std::int64_t most = rules.options.attention_bytes;
  for (const AttentionGraphShape& shape : of.shapes(ordered)) {
    const auto piece = graph_piece(shape, most);
    const std::int64_t sums = key_sum_bytes(of.args);
    const auto runs =
        piece || !ordered ? std::vector<AttentionGraphShape>() : in_runs(shape, most - sums);
    for (const AttentionGraphShape& run : runs) {
      offer.bytes = std::max(offer.bytes, sums + graph_bytes(run).total());
      offer.pieces.push_back(run);
    }
    if (!runs.empty()) continue;
    if (!piece)
      return refused(way, concat("one key-value head takes ",
                                 format_bytes(graph_bytes(one_head(shape)).total()),
                                 " of memory, more than ", format_bytes(most)));
    offer.bytes = std::max(offer.bytes, graph_bytes(*piece).total());
    offer.pieces.push_back(*piece);
  }
  if (offer.pieces.empty() || of.forward().head_dim > kWidestHead)
    return refused(way, concat("it needs bf16, heads of width up to ", kWidestHead,
                               ", whole groups, rows and heads aligned to 16 bytes, and queries ",
                               "at consecutive positions"));
  return offer;
}

/// Of GPUs that multiply bf16.
constexpr int kOldestCapability = 80;
constexpr const char* kTooOld = "it needs compute capability 8.0 or newer";

/// cuDNN's way, or why it has none on this GPU.
AttentionOffer cudnn_way(AttentionWay way, const AttentionPass& of, const AttentionRules& rules) {
  if (rules.options.attention == CudaAttention::own) return refused(way, "it is not to be used");
  if (of.forward().cap > 0) return refused(way, "scores have a cap");
  if (rules.cudnn == 0 || rules.capability == 0) return refused(way, "there is no cuDNN");
  if (rules.capability < kOldestCapability) return refused(way, kTooOld);
  if (rules.cudnn < kOldestCudnn) return refused(way, "it is older than 9.10");
  if (way == AttentionWay::cudnn_ordered) {
    if (!of.backward || !rules.options.deterministic)
      return refused(way, "it is for deterministic gradients");
    if (rules.cudnn < kOrderedCudnn || rules.capability / 10 != 9)
      return refused(way, "it needs cuDNN 9.25 and compute capability 9.x");
  } else if (of.backward && of.forward().starts.data && rules.capability / 10 == 8) {
    return refused(way, "it has no gradients of documents on compute capability 8.x");
  }
  return cudnn_offer(way, of, rules);
}

AttentionOffer own_way(const AttentionPass& of, const AttentionRules& rules) {
  constexpr std::int64_t kMostBlocks = 65535;  // of a grid's second and third dimension
  const AttentionBackward& args = of.args;
  const Attention& a = args.forward;
  const bool fits =
      (a.head_dim == 64 || a.head_dim == 128) && a.scale > 0 && a.cap == 0 &&
      are_aligned_bf16({a.q, a.k, a.v, a.out}) && a.heads <= kMostBlocks &&
      a.sequences() <= kMostBlocks &&
      (!of.backward || (are_aligned_bf16({args.d_out, args.d_q}) &&
                        (args.d_k.dtype == DType::f32 || are_aligned_bf16({args.d_k, args.d_v}))));
  if (rules.capability > 0 && rules.capability < kOldestCapability)
    return refused(AttentionWay::own, kTooOld);
  if (!fits)
    return refused(
        AttentionWay::own,
        "they need bf16, heads of width 64 or 128, rows aligned to 16 bytes, a scale above 0 and "
        "scores without a cap");
  return {.way = AttentionWay::own,
          .bytes = of.backward ? a.q.rows * a.heads * bytes_of(DType::f32) : 0};
}

std::vector<AttentionOffer> offers(const AttentionPass& of, const AttentionRules& rules) {
  std::vector<AttentionOffer> all = {cudnn_way(AttentionWay::cudnn, of, rules),
                                     cudnn_way(AttentionWay::cudnn_ordered, of, rules),
                                     own_way(of, rules),
                                     {.way = AttentionWay::parts}};
  all.back().bytes =
      cuda::attention_parts(of.forward(), of.backward, rules.options.attention_bytes).bytes;
  if (rules.options.attention == CudaAttention::cudnn)
    for (AttentionOffer& offer : all)
      if (offer.way == AttentionWay::own || offer.way == AttentionWay::parts)
        offer.why_not = "training.attention is \"cudnn\"";
  return all;
}

}  // namespace

std::string_view name_of(AttentionWay way) {
  constexpr std::string_view kNames[] = {"cudnn", "cudnn ordered", "own", "parts"};
  return kNames[static_cast<int>(way)];
}

std::vector<AttentionOffer> attention_offers(const Attention& args, const AttentionRules& rules) {
  return offers({{.forward = args}, false}, rules);
}

std::vector<AttentionOffer> attention_offers(const AttentionBackward& args,
                                             const AttentionRules& rules) {
  return offers({args, true}, rules);
}

AttentionOffer best_offer(std::vector<AttentionOffer> offers,
                          const std::function<std::string()>& what) {
  const auto can = [](const AttentionOffer& offer) { return offer.why_not.empty(); };
  const auto found = std::ranges::find_if(offers, can);
  if (found == offers.end())
    refuse("attention: cuDNN does not compute ", what(), ": ", offers.front().why_not);
  return std::move(*found);
}

std::string describe(const Attention& a, bool backward) {
  return concat(a.sequences(), " x ", a.positions, ", ", a.heads, " heads over ",
                a.k.cols / a.head_dim, " of ", a.head_dim, " in ", name_of(a.q.dtype),
                a.window > 0 ? concat(", window ", a.window) : std::string(),
                a.cap > 0 ? concat(", scores capped at ", a.cap) : std::string(),
                a.starts.data ? ", documents" : "",
                a.query_blocks.data ? ", a part of the positions" : "",
                backward ? ", gradients" : "");
}

}  // namespace axonn
