#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "axonn/run/optim/optimizer.h"

namespace axonn {

/// Momentum whose update of each hidden matrix is orthogonalised; AdamW for all other parameters.
///
///   B = momentum · B + g;  U = g + momentum · B, or B;  X = U / (|U| + 1e-7)
///   muon_steps times:  A = X Xᵀ,  X = a X + (b A + c A²) X     (with XᵀX if X has more rows)
///   W -= lr · (factor · X + weight_decay · W)
///
/// A parameter that joins several matrices, such as GPT-2's q, k and v, counts as several; so do a
/// layer's experts. X and the products have the compute type, all else is f32.
///
/// On a grid, B lies on the pieces, as all state does. Each matrix has one owner among all ranks,
/// which computes X from the whole U. Owners are chosen greedily by the flops of the matrices, so
/// that the work is spread over all ranks. They work in rounds of at most one matrix each.
///
/// Communication of a round: two all-to-alls over the world, U to the owners (f32) and X back to
/// all ranks that hold a part of the matrix (compute type); of a step, about twice the bytes of the
/// hidden matrices over the number of ranks. With Overlap::data, U of the next round travels while
/// a round computes.
///
/// Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024; Liu et
/// al., "Muon is Scalable for LLM Training", 2025, arXiv:2502.16982.
std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config);

/// The layer to which the operations of the exchange and the Newton-Schulz steps belong in traces
/// and schedules.
inline constexpr const char* kMuonLayer = "muon";

/// The factor of the update of a matrix: 0.2 · sqrt(max(rows, cols)) or sqrt(max(1, rows / cols)).
double muon_factor(MuonScale scale, std::int64_t rows, std::int64_t cols);

/// (a, b, c) of each Newton-Schulz step.
using NewtonSchulzSteps = std::vector<std::array<float, 3>>;
NewtonSchulzSteps newton_schulz_steps(const OptimizerConfig& config);

/// x, whose singular values are at most 1, becomes an approximation of the orthogonal factor of its
/// polar decomposition: its singular values move near 1.
void orthogonalise(const Context& ctx, const Tensor& x, const NewtonSchulzSteps& steps);

}  // namespace axonn
