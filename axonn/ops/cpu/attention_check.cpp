#include "axonn/base/check.h"
#include "axonn/ops/checks.h"
#include "axonn/ops/cpu/attention_blocks.h"

namespace axonn::cpu {

void check_attention(const char* operation, const Attention& args) {
  const Checker check{operation};
  const std::int64_t rows = args.q.rows, D = args.head_dim;
  AXONN_CHECK(args.positions > 0 && rows % args.positions == 0, operation, ": ", rows,
              " rows are no sequences of ", args.positions, " positions");
  AXONN_CHECK(D > 0 && args.heads >= 0 && args.group > 0 && args.first_query >= 0 &&
                  args.first_query < args.group,
              operation, ": ", args.heads, " heads of ", D, ", groups of ", args.group,
              ", the first begins at ", args.first_query);
  AXONN_CHECK(args.window >= 0, operation, ": a window of ", args.window, " keys");
  AXONN_CHECK(args.k.cols % D == 0 &&
                  (args.first_query + args.heads + args.group - 1) / args.group <= args.k.cols / D,
              operation, ": k is ", args.k, ", too narrow for ", args.heads, " heads of ", D,
              ", groups of ", args.group, " of which the first begins at ", args.first_query);
  check.compute_type("q", args.q);
  check.shape("q", args.q, rows, args.heads * D);
  const auto like = [&](const char* name, const View& view, const View& other) {
    check.type(name, view, {args.q.dtype});
    check.shape(name, view, rows, other.cols);
  };
  like("k", args.k, args.k);
  like("v", args.v, args.k);
  like("out", args.out, args.q);
  if (args.starts.data) {
    check.type("starts", args.starts, {DType::i32});
    check.shape("starts", args.starts, 1, rows);
  }
  check.type("stats", args.stats, {DType::f32});
  check.shape("stats", args.stats, rows, args.heads);
}

void check_attention_backward(const AttentionBackward& args) {
  const char* operation = "attention_backward";
  const Checker check{operation};
  const Attention& forward = args.forward;
  check_attention(operation, forward);
  const auto like = [&](const char* name, const View& view, const View& other) {
    check.type(name, view, {forward.q.dtype});
    check.shape(name, view, other.rows, other.cols);
  };
  like("d_out", args.d_out, forward.q);
  like("d_q", args.d_q, forward.q);
  like("d_k", args.d_k, forward.k);
  like("d_v", args.d_v, forward.k);
}

}  // namespace axonn::cpu
