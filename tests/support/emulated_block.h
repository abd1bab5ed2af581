#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <ucontext.h>

namespace axonn::testing_support {

/// Emulates a GPU's thread block as contexts of one CPU thread, for kernels that take their
/// platform as an argument (reduce_block.h). Each context runs until it waits for others. Warps have
/// 32 lanes, or 64 as on AMD GPUs.
class EmulatedBlock {
 public:
  class Thread;

  explicit EmulatedBlock(int threads, int lanes = 32)
      : lanes_(lanes), contexts_(threads), warps_(threads / lanes) {}

  /// Runs body on every thread.
  void run(const std::function<void(const Thread&)>& body);

 private:
  static constexpr int kMostLanes = 64;

  /// A point where contexts wait for each other.
  struct Barrier {
    int arrived = 0;
    int round = 0;
  };

  /// Data that the lanes of a warp exchange.
  struct Warp {
    Barrier barrier;
    std::uint64_t values[kMostLanes];  // the bytes of the shuffled values
  };

  struct Context {
    ucontext_t state;
    std::vector<char> stack = std::vector<char>(1 << 16);
    bool ended = false;
  };

  /// Lets other contexts run until `parties` contexts have arrived.
  void wait(Barrier& barrier, int parties) {
    const int round = barrier.round;
    if (++barrier.arrived == parties) {
      barrier.arrived = 0;
      ++barrier.round;
    }
    while (barrier.round == round) swapcontext(&contexts_[running_].state, &caller_);
  }

  static void enter(unsigned high, unsigned low) {
    const auto address = static_cast<std::uintptr_t>(high) << 32 | low;
    auto& block = *reinterpret_cast<EmulatedBlock*>(address);
    block.run_one();
  }
  void run_one();

  int lanes_;  // lanes per warp
  std::vector<Context> contexts_;
  std::vector<Warp> warps_;
  Barrier all_;
  ucontext_t caller_;
  int running_ = 0;
  const std::function<void(const Thread&)>* body_ = nullptr;
};

class EmulatedBlock::Thread {
 public:
  Thread(EmulatedBlock& block, int index) : block_(block), index_(index) {}

  int thread() const { return index_; }
  int threads() const { return static_cast<int>(block_.contexts_.size()); }
  void sync() const { block_.wait(block_.all_, static_cast<int>(block_.contexts_.size())); }

  template <typename T>
  T shuffle_xor(T x, int mask) const {
    Warp& warp = this->warp();
    std::memcpy(&warp.values[lane()], &x, sizeof x);
    wait_for(warp);
    std::memcpy(&x, &warp.values[lane() ^ mask], sizeof x);
    wait_for(warp);
    return x;
  }

 private:
  Warp& warp() const { return block_.warps_[index_ / block_.lanes_]; }
  int lane() const { return index_ % block_.lanes_; }
  void wait_for(Warp& warp) const { block_.wait(warp.barrier, block_.lanes_); }

  EmulatedBlock& block_;
  int index_;
};

inline void EmulatedBlock::run_one() {
  const int self = running_;
  (*body_)(Thread(*this, self));
  contexts_[self].ended = true;
}

inline void EmulatedBlock::run(const std::function<void(const Thread&)>& body) {
  body_ = &body;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  for (Context& context : contexts_) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = context.stack.data();
    context.state.uc_stack.ss_size = context.stack.size();
    context.state.uc_link = &caller_;
    makecontext(&context.state, reinterpret_cast<void (*)()>(&EmulatedBlock::enter), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  }
  for (bool any = true; any;) {
    any = false;
    for (running_ = 0; running_ < static_cast<int>(contexts_.size()); ++running_) {
      if (contexts_[running_].ended) continue;
      any = true;
      swapcontext(&caller_, &contexts_[running_].state);
    }
  }
}

}  // namespace axonn::testing_support
