#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "axonn/parallel/embedding.h"

namespace axonn {

/// Why the work of a step on this grid cannot be captured, and what to do; "" if it can.
std::string why_not_captured(Device& device, const Grid& grid);

/// Pieces of a step that were captured once and are launched again in later steps, in which the
/// host does nothing of their work.
///
/// A launch reads and writes the addresses of its capture. So between the pieces nothing may be
/// under way and nothing be held that a piece does not find again: what lives longer than a piece
/// (parameters, gradients, sums, tokens) lies where it lay, and what a piece took from the arena
/// was free when it began, as it must be at each launch. The arena says whether that is so; where
/// it is not, because somebody keeps memory that was taken since, everything is captured anew. Of
/// several ranks all have to launch, or capture, the same pieces: there it is an error.
///
/// It goes before the groups whose collectives it has captured: NCCL's wait for that in their end.
class StepGraphs {
 public:
  /// The micro-batches of a step, which differ: the first writes gradients and later ones add to
  /// them, and after the last they are complete.
  enum class Piece { only, first, middle, last };
  static Piece piece_of(int micro, int micro_batches);

  /// Numbers of a step that its pieces hold as they were when they were captured.
  struct Constants {
    float loss_scale = 1, max_norm = 0;
    bool operator==(const Constants&) const = default;
  };

  /// A step begins. Whether its pieces can be launched or captured: not if there are pieces of
  /// other constants. Errors: see above.
  bool begin_step(const Context& ctx, const Constants& constants);

  /// Launches the piece; first captures it as `work` does it, if it is not captured.
  /// Errors: work keeps memory that it took, or leaves something under way.
  void run(Arena& arena, Piece piece, const std::function<void()>& work);

  /// This micro-batch's tokens at the addresses that pieces read. Errors: rows of another shape.
  const Tokens& place(const Context& ctx, const Tokens& tokens);

  /// Pieces captured so far, those that were captured anew counted again.
  int captures() const { return captures_; }

 private:
  struct Captured {
    std::unique_ptr<Graph> graph;
    Arena::Layout layout;
  };

  std::array<Captured, 4> pieces_;  // by Piece
  Tokens tokens_;
  Constants constants_;
  int captures_ = 0;
};

}  // namespace axonn
