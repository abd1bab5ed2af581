#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

namespace axonn {

/// The backward steps of a forward pass, run in reverse. Each step is freed as soon as it ran, and
/// with it the tensors that it kept. Several tapes may live at once (one a micro-batch).
///
/// Steps that belong to one of several chunks may be recorded on *lanes*, tapes side by side. In
/// backward lanes take turns, in their order, each running until it pauses: where a step has
/// started a collective that the lane's next step waits for. So one chunk's collective is under way
/// while other chunks compute. Turns depend on what was recorded alone, never on what is done when.
class Tape {
 public:
  void record(std::function<void()> step) { entries_.emplace_back(std::move(step)); }

  /// Here backward has the other lanes take their turns before it goes on with this one.
  void pause() { entries_.emplace_back(Pause()); }

  /// A place in this tape for steps that are recorded later: backward runs them when it gets there.
  std::shared_ptr<Tape> branch();

  /// Lane i, beside the lanes before it. What is recorded on the tape itself comes after all steps
  /// of the lanes so far, and before those of lanes that are asked for later.
  Tape& lane(std::size_t i);
  /// The lanes whose steps backward runs first and last in each turn, if there are lanes now; else
  /// the tape itself. So a step in the last lane runs when all lanes have come to its place,
  /// provided that all lanes pause alike.
  Tape& first_lane();
  Tape& last_lane();

  void backward() {
    while (!run()) {
    }
  }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Pause {};
  using Branch = std::shared_ptr<Tape>;
  using Lanes = std::vector<std::shared_ptr<Tape>>;
  using Entry = std::variant<std::function<void()>, Pause, Branch, Lanes>;

  /// Runs up to the next pause; true when there is nothing left.
  bool run();
  static void run_in_turns(const Lanes& lanes);

  std::vector<Entry> entries_;
};

}  // namespace axonn
