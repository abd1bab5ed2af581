#pragma once

#include <memory>

namespace axonn {

/// A collective that was started and may not be finished: a handle that moves and waits.
///
/// wait() makes the compute stream wait (on a CPU: the calling thread); the destructor waits too,
/// so a buffer that a Work uses is never freed under it. An empty Work is done.
/// wait() throws Error if the collective failed or its group was aborted; the destructor does not.
class Work {
 public:
  /// What a transport implements.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept {
    finish();
    state_ = std::move(other.state_);
    kept_ = std::move(other.kept_);
    return *this;
  }
  ~Work() { finish(); }

  void wait() {
    if (!state_) return;
    const auto state = std::move(state_);
    const auto kept = std::move(kept_);
    state->wait();
  }

  bool done() const { return !state_ || state_->done(); }

  /// Holds a buffer's owner until the collective is done.
  void keep(std::shared_ptr<void> buffer) { kept_ = std::move(buffer); }

 private:
  void finish() noexcept {
    try {
      wait();
    } catch (...) {  // the group is aborted; whoever waits in the open reports it
    }
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<void> kept_;
};

}  // namespace axonn
