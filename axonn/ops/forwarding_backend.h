#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

/// A Backend that passes every operation to another one, through around(). Derive from it to time
/// operations, or to change some of them.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner)
      : owned_(std::move(inner)), inner_(owned_.get()) {}
  /// Does not own `inner`, which must outlive it.
  explicit ForwardingBackend(Backend& inner) : inner_(&inner) {}

  Device& device() override { return inner_->device(); }
  std::string name() const override { return inner_->name(); }
  std::vector<std::string> take_remarks() override { return inner_->take_remarks(); }

  void product(const Matmul& args) override {
    around("matmul", [=, this] { inner_->product(args); },
           {args.out, args.a, args.b, args.bias, args.gelu_input, args.gelu_derivative_at,
            args.bias_gradient});
  }
  bool fuses(const Matmul& args) override { return inner_->fuses(args); }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override {
    return inner_->matmul_ways(shape);
  }
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override {
    return inner_->set_matmul_way(shape, way);
  }
  std::string matmul_device() const override { return inner_->matmul_device(); }

  void attention(const Attention& args) override {
    around("attention", [=, this] { inner_->attention(args); },
           {args.out, args.q, args.k, args.v, args.stats});
  }
  void attention_backward(const AttentionBackward& args) override {
    around("attention_backward", [=, this] { inner_->attention_backward(args); },
           {args.d_q, args.d_k, args.d_v, args.d_out, args.forward.q, args.forward.k,
            args.forward.v, args.forward.out, args.forward.stats});
  }

  void keep_heads(const KeepHeads& args) override {
    around("keep_heads", [=, this] { inner_->keep_heads(args); },
           {args.kept, args.inp, args.slots, args.positions});
  }
  void cached_attention(const CachedAttention& args) override {
    around("cached_attention", [=, this] { inner_->cached_attention(args); },
           {args.out, args.q, args.keys, args.values, args.slots, args.positions});
  }

  void row_moments(View out, View inp) override {
    around("row_moments", [=, this] { inner_->row_moments(out, inp); }, {out, inp});
  }
  void add_moments(View out, View moments, View a, View b) override {
    around("add_moments", [=, this] { inner_->add_moments(out, moments, a, b); },
           {out, moments, a, b});
  }
  void combine_moments(View out, View moments, std::int64_t count, float eps) override {
    around("combine_moments", [=, this] { inner_->combine_moments(out, moments, count, eps); },
           {out, moments});
  }
  void layer_norm(View out, View inp, View weight, View bias, View stats) override {
    around("layer_norm", [=, this] { inner_->layer_norm(out, inp, weight, bias, stats); },
           {out, inp, weight, bias, stats});
  }
  void layer_norm_sums(View out, View d_out, View inp, View weight, View stats) override {
    around("layer_norm_sums",
           [=, this] { inner_->layer_norm_sums(out, d_out, inp, weight, stats); },
           {out, d_out, inp, weight, stats});
  }
  void layer_norm_backward(const NormBackward& args) override {
    around("layer_norm_backward", [=, this] { inner_->layer_norm_backward(args); },
           {args.d_inp, args.d_out, args.inp, args.weight, args.residual});
  }
  void layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                  View stats) override {
    around("layer_norm_weight_backward",
           [=, this] { inner_->layer_norm_weight_backward(d_weight, d_bias, d_out, inp, stats); },
           {d_weight, d_bias, d_out, inp, stats});
  }

  void moments_about_zero(View out, View moments, std::int64_t count) override {
    around("moments_about_zero", [=, this] { inner_->moments_about_zero(out, moments, count); },
           {out, moments});
  }
  void rms_norm_sums(View out, View d_out, View inp, View weight, View stats) override {
    around("rms_norm_sums", [=, this] { inner_->rms_norm_sums(out, d_out, inp, weight, stats); },
           {out, d_out, inp, weight, stats});
  }
  void head_norm(const HeadNorm& args) override {
    around("head_norm", [=, this] { inner_->head_norm(args); }, {args.out, args.inp, args.weight});
  }
  void head_norm_backward(const HeadNormBackward& args) override {
    around("head_norm_backward", [=, this] { inner_->head_norm_backward(args); },
           {args.d_inp, args.d_out, args.forward.inp, args.forward.weight, args.d_weight});
  }
  void rotary_embedding(const RotaryEmbedding& args) override {
    around("rotary_embedding", [=, this] { inner_->rotary_embedding(args); },
           {args.out, args.inp, args.table});
  }
  void swiglu(View out, View inp) override {
    around("swiglu", [=, this] { inner_->swiglu(out, inp); }, {out, inp});
  }
  void swiglu_backward(View d_inp, View d_out, View inp) override {
    around("swiglu_backward", [=, this] { inner_->swiglu_backward(d_inp, d_out, inp); },
           {d_inp, d_out, inp});
  }

  void dropout(const Dropout& args) override {
    around("dropout", [=, this] { inner_->dropout(args); }, {args.out, args.inp});
  }
  void gelu(View out, View inp) override {
    around("gelu", [=, this] { inner_->gelu(out, inp); }, {out, inp});
  }
  void gelu_backward(View d_inp, View d_out, View inp) override {
    around("gelu_backward", [=, this] { inner_->gelu_backward(d_inp, d_out, inp); },
           {d_inp, d_out, inp});
  }
  void add(View out, View a, View b) override {
    around("add", [=, this] { inner_->add(out, a, b); }, {out, a, b});
  }
  void cast(View out, View inp) override {
    around("cast", [=, this] { inner_->cast(out, inp); }, {out, inp});
  }
  void column_sum(View out, View inp) override {
    around("column_sum", [=, this] { inner_->column_sum(out, inp); }, {out, inp});
  }

  void embedding(const TokenEmbedding& args) override {
    around("embedding", [=, this] { inner_->embedding(args); },
           {args.out, args.ids, args.table, args.learned});
  }
  void embedding_backward(View d_table, View d_out, View ids, std::int64_t first) override {
    around("embedding_backward",
           [=, this] { inner_->embedding_backward(d_table, d_out, ids, first); },
           {d_table, d_out, ids});
  }
  void positions_backward(View d_positions, View d_out) override {
    around("positions_backward", [=, this] { inner_->positions_backward(d_positions, d_out); },
           {d_positions, d_out});
  }

  void softmax_stats(View out, View logits, View targets, VocabularyPiece piece) override {
    around("softmax_stats", [=, this] { inner_->softmax_stats(out, logits, targets, piece); },
           {out, logits, targets});
  }
  void combine_softmax(View loss, View lse, View stats, View targets) override {
    around("combine_softmax", [=, this] { inner_->combine_softmax(loss, lse, stats, targets); },
           {loss, lse, stats, targets});
  }
  void greedy_targets(View out, View stats, View targets) override {
    around("greedy_targets", [=, this] { inner_->greedy_targets(out, stats, targets); },
           {out, stats, targets});
  }
  void cross_entropy_backward(const LogitsBackward& args) override {
    around("cross_entropy_backward", [=, this] { inner_->cross_entropy_backward(args); },
           {args.d_logits, args.logits, args.lse, args.targets});
  }

  void sum(View out, View inp) override {
    around("sum", [=, this] { inner_->sum(out, inp); }, {out, inp});
  }
  void squared_sum(View out, View inp) override {
    around("squared_sum", [=, this] { inner_->squared_sum(out, inp); }, {out, inp});
  }
  void clip_factor(View out, View squared_norm, float max_norm) override {
    around("clip_factor", [=, this] { inner_->clip_factor(out, squared_norm, max_norm); },
           {out, squared_norm});
  }
  void count_nonfinite(View out, View inp) override {
    around("count_nonfinite", [=, this] { inner_->count_nonfinite(out, inp); }, {out, inp});
  }

  void adamw(const AdamWUpdate& args) override {
    around("adamw", [=, this] { inner_->adamw(args); },
           {args.out, args.master, args.first, args.second, args.gradient});
  }
  void sgd(const SgdUpdate& args) override {
    around("sgd", [=, this] { inner_->sgd(args); }, {args.out, args.master, args.gradient});
  }

  void mark(std::string_view layer) override { inner_->mark(layer); }

 protected:
  /// Runs one operation, which has the name of its function (product() is "matmul"). `run` holds
  /// its arguments by value, so it may be copied, called later, and called again. `operands` are
  /// its main matrices in the order of the calls above; a matrix that the caller left out is empty.
  virtual void around(std::string_view operation, const std::function<void()>& run,
                      std::initializer_list<View> operands = {}) {
    (void)operation, (void)operands;
    run();
  }

 private:
  std::unique_ptr<Backend> owned_;
  Backend* inner_;
};

}  // namespace axonn
