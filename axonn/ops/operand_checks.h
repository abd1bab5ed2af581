#pragma once

#include "axonn/ops/backend.h"

namespace axonn {

// Checks of the operands of each Backend operation, the same on every device. Each throws Error
// with the names of the operation and of the operand, what it is and what was wanted.

void check_matmul(const Matmul& args);
void check_attention(const char* operation, const Attention& args);
void check_attention_backward(const AttentionBackward& args);
void check_keep_heads(const KeepHeads& args);
void check_cached_attention(const CachedAttention& args);

void check_row_moments(const View& out, const View& inp);
void check_add_moments(const View& out, const View& moments, const View& a, const View& b);
/// Returns the number of pieces; 0 if there are no rows.
std::int64_t check_combine_moments(const View& out, const View& moments, std::int64_t count);

/// The operands of all LayerNorm operations: inp (R, C), weight (1, C) and stats (R, 2).
struct NormOperands {
  const char* operation;
  View inp, weight, stats;
};
void check_layer_norm(const NormOperands& norm, const View& out, const View& bias);
void check_norm_sums(const NormOperands& norm, const View& out, const View& d_out);
void check_layer_norm_backward(const NormBackward& args);
void check_layer_norm_weight_backward(const NormOperands& norm, const View& d_bias,
                                      const View& d_out);

void check_moments_about_zero(const View& out, const View& moments);
/// Both return the number of heads.
int check_head_norm(const HeadNorm& args);
int check_head_norm_backward(const HeadNormBackward& args);

void check_rotary_embedding(const RotaryEmbedding& args);
void check_swiglu(const View& out, const View& inp);
void check_swiglu_backward(const View& d_inp, const View& d_out, const View& inp);
void check_dropout(const Dropout& args);
/// Checks that out and inp are of the same shape, and each f32 or bf16.
void check_elementwise(const char* operation, const View& out, const char* name, const View& inp);
void check_column_sum(const View& out, const View& inp);

void check_embedding(const TokenEmbedding& args);
void check_embedding_backward(const View& d_table, const View& d_out, const View& ids);
void check_positions_backward(const View& d_positions, const View& d_out);

void check_softmax_stats(const View& out, const View& logits, const View& targets,
                         const VocabularyPiece& piece);
/// An operand and its name in messages.
struct NamedView {
  const char* name;
  View view;
};
/// Checks an out (R, 1) that is made from the stats of pieces. Returns the number of pieces; 0 if
/// there are no rows.
std::int64_t check_softmax_pieces(const char* operation, const NamedView& out, const View& stats,
                                  const View& targets);
void check_cross_entropy_backward(const LogitsBackward& args);

/// A reduction of inp (R, C) to one number of type `sum`.
void check_reduction(const char* operation, DType sum, const View& out, const View& inp);
void check_clip_factor(const View& out, const View& squared_norm);

void check_adamw(const AdamWUpdate& args);
void check_sgd(const SgdUpdate& args);

}  // namespace axonn
