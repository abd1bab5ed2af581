#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "axonn/network/nn/tokens.h"

namespace axonn {

/// Pieces of a step that are captured once as device graphs and launched again in later steps,
/// without any work for the host.
///
/// A launch reads and writes the addresses of its capture. So what outlives a piece (parameters,
/// gradients, sums, tokens) must stay at its address, and what a piece takes from the arena must
/// have been free when it began, and must be free at each launch. Between pieces nothing may be in
/// flight. The arena reports whether memory still lies so. If it does not, because somebody holds
/// memory taken since, everything is captured again. With several ranks that is an error, because
/// all of them must launch, or capture, the same pieces.
///
/// It must be destroyed before the groups whose collectives it has captured: NCCL waits for the
/// graphs when its communicators are destroyed.
class StepGraphs {
 public:
  /// Numbers of a step that its graphs hold as constants.
  struct Constants {
    float gradient_factor = 1, loss_scale = 1, max_norm = 0;
    bool operator==(const Constants&) const = default;
  };

  /// Begins a step. Returns whether its pieces can be launched or captured: false if pieces with
  /// other constants are captured. Throws Error as described above.
  bool begin_step(const Context& ctx, const Constants& constants);

  /// Launches the piece of micro-batch `micro`, after capturing `work` as that piece if that has
  /// not been done. The only, first and last micro-batch of a step have their own pieces: the first
  /// writes gradients, later ones add to them, and after the last they are complete. Throws if
  /// work keeps memory that it took, or leaves something in flight.
  void run(Arena& arena, int micro, int micro_batches, const std::function<void()>& work);

  /// Copies this micro-batch's tokens to the addresses that the pieces read. Throws if the rows
  /// have another shape.
  const Tokens& copy_to(const Context& ctx, const Tokens& tokens);

  /// Number of captures so far, including repeated ones.
  int captures() const { return captures_; }

 private:
  struct Captured {
    std::unique_ptr<Graph> graph;
    Arena::Layout layout;
  };

  std::array<Captured, 4> pieces_;
  Tokens tokens_;
  Constants constants_;
  int captures_ = 0;
};

}  // namespace axonn
