#pragma once

#include <memory>

namespace axonn {

/// A handle of a collective that may be in flight. Move-only.
///
/// wait() makes the compute stream wait for the collective (on a CPU, the calling thread). The
/// destructor waits too, so no buffer is freed while the collective uses it. An empty Work is done.
/// wait() throws Error if the collective failed or the world was aborted; the destructor does not.
class Work {
 public:
  /// A collective's state; every transport implements it.
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

  /// Keeps a buffer's owner alive until wait() returns.
  void keep(std::shared_ptr<void> buffer) { kept_ = std::move(buffer); }

 private:
  void finish() noexcept {
    try {
      wait();
    } catch (...) {  // explicit calls of wait() report errors
    }
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<void> kept_;
};

}  // namespace axonn
