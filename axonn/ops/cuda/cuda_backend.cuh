#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/ops/cuda/attention/cudnn_attention.h"
#include "axonn/ops/cuda/matmul/products.h"
#include "axonn/ops/cuda/scratch.cuh"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

/// Backend on one GPU, NVIDIA or AMD. Each group of operations has a source file of its own; most
/// operations check their arguments, choose the element type and launch a kernel of ops/rowwise.
/// None waits for the GPU.
class CudaBackend final : public Backend {
 public:
  CudaBackend(int gpu, std::string gpu_name, const CudaOptions& options);

  Device& device() override { return *device_; }
  std::string name() const override { return std::string(gpu_platform()->device); }
  std::vector<std::string> take_remarks() override;

  void product(const Matmul& args) override;
  bool fuses(const Matmul& args) override { return products_.fuses(args); }
  std::vector<std::string> matmul_ways(const MatmulShape& shape) const override;
  bool set_matmul_way(const MatmulShape& shape, std::string_view way) override;
  std::string matmul_device() const override;

  void attention(const Attention& args) override;
  void attention_backward(const AttentionBackward& args) override;
  void keep_heads(const KeepHeads& args) override;
  void cached_attention(const CachedAttention& args) override;

  void row_moments(View out, View inp) override;
  void add_moments(View out, View moments, View a, View b) override;
  void combine_moments(View out, View moments, std::int64_t count, float eps) override;
  void layer_norm(View out, View inp, View weight, View bias, View stats) override;
  void layer_norm_sums(View out, View d_out, View inp, View weight, View stats) override;
  void layer_norm_backward(const NormBackward& args) override;
  void layer_norm_weight_backward(View d_weight, View d_bias, View d_out, View inp,
                                  View stats) override;

  void moments_about_zero(View out, View moments, std::int64_t count) override;
  void rms_norm_sums(View out, View d_out, View inp, View weight, View stats) override;

  void head_norm(const HeadNorm& args) override;
  void head_norm_backward(const HeadNormBackward& args) override;

  void rotary_embedding(const RotaryEmbedding& args) override;

  void swiglu(View out, View inp) override;
  void swiglu_backward(View d_inp, View d_out, View inp) override;

  void dropout(const Dropout& args) override;
  void gelu(View out, View inp) override;
  void gelu_backward(View d_inp, View d_out, View inp) override;
  void add(View out, View a, View b) override;
  void cast(View out, View inp) override;
  void column_sum(View out, View inp) override;

  void embedding(const TokenEmbedding& args) override;
  void embedding_backward(View d_table, View d_out, View ids, std::int64_t first) override;
  void positions_backward(View d_positions, View d_out) override;

  void softmax_stats(View out, View logits, View targets, VocabularyPiece piece) override;
  void combine_softmax(View loss, View lse, View stats, View targets) override;
  void greedy_targets(View out, View stats, View targets) override;
  void cross_entropy_backward(const LogitsBackward& args) override;

  void sum(View out, View inp) override;
  void squared_sum(View out, View inp) override;
  void clip_factor(View out, View squared_norm, float max_norm) override;
  void count_nonfinite(View out, View inp) override;

  void adamw(const AdamWUpdate& args) override;
  void sgd(const SgdUpdate& args) override;

 private:
  template <template <typename> typename Partials, typename Sum>
  void reduce(View out, View inp);

  cudaStream_t stream() const { return handle_of(device_->compute()); }

  std::unique_ptr<Device> device_;
  std::string gpu_name_;
  Scratch scratch_;  // used by one operation at a time: kernels of the next one run after it
  Products products_;
  CudnnAttention cudnn_;
};

}  // namespace axonn::cuda
