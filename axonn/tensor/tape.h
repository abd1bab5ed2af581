#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace axonn {

/// The backward steps of a forward pass, run in reverse. Each step is freed as soon as it ran, and
/// with it the tensors that it kept. Several tapes may live at once (one a micro-batch).
class Tape {
 public:
  void record(std::function<void()> step) { steps_.push_back(std::move(step)); }

  /// A place in this tape for steps that are recorded later: backward runs them when it gets there.
  std::shared_ptr<Tape> branch() {
    auto later = std::make_shared<Tape>();
    record([later] { later->backward(); });
    return later;
  }

  void backward() {
    while (!steps_.empty()) {
      const auto step = std::move(steps_.back());
      steps_.pop_back();
      step();
    }
  }

  std::size_t size() const { return steps_.size(); }

 private:
  std::vector<std::function<void()>> steps_;
};

}  // namespace axonn
