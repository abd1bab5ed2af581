#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

namespace axonn {

/// Records the backward steps of a forward pass and runs them in reverse. Each step is freed as
/// soon as it has run, together with the tensors that it kept. Several tapes may exist at once (one
/// per micro-batch).
///
/// The steps of different chunks may be recorded on *lanes*, which are tapes side by side. In
/// backward, the lanes take turns in their order. A lane runs until it pauses: there, a step has
/// started a collective that the lane's next step waits for. So one chunk's collective overlaps
/// with the compute of other chunks. The turns depend only on what was recorded, never on timing.
class Tape {
 public:
  void record(std::function<void()> step) { entries_.emplace_back(std::move(step)); }

  /// Records a pause: here, backward gives the other lanes their turns before this one continues.
  void pause() { entries_.emplace_back(Pause()); }

  /// Reserves a position in this tape for steps that are recorded later. Backward runs them when it
  /// reaches that position.
  std::shared_ptr<Tape> branch();

  /// Lane i of the current set of lanes. Recording a step on the tape itself ends the set: the step
  /// follows, in forward order, all steps of these lanes, and the next call begins a new set.
  Tape& lane(std::size_t i);
  /// The first and last lane of the current set, in the order of backward's turns; the tape itself
  /// if there is no current set. A step in the last lane runs when all lanes have reached its
  /// place, provided that all lanes pause equally often.
  Tape& first_lane();
  Tape& last_lane();

  void backward() {
    while (!run()) {
    }
  }

 private:
  struct Pause {};
  using Branch = std::shared_ptr<Tape>;
  using Lanes = std::vector<std::shared_ptr<Tape>>;
  using Entry = std::variant<std::function<void()>, Pause, Branch, Lanes>;

  /// Runs up to the next pause. Returns true if no steps are left.
  bool run();
  /// The current set of lanes, or null.
  Lanes* lanes() { return entries_.empty() ? nullptr : std::get_if<Lanes>(&entries_.back()); }

  std::vector<Entry> entries_;
};

}  // namespace axonn
