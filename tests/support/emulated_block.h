#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <ucontext.h>

#include "axonn/tensor/dtype.h"

#include "tests/support/async_copies.h"

namespace axonn::testing_support {

/// Emulates a GPU's thread block as contexts of one CPU thread, for kernels that take their
/// platform as an argument (flash_kernels.h, reduce_block.h). Each context runs until it waits for
/// others. Warps have 32 lanes, or 64 as on AMD GPUs. Multiplications and loads of a whole warp are
/// defined for 32 lanes, as in NVIDIA's PTX ISA.
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
    std::uint32_t a[kMostLanes][4], b[kMostLanes][2];
    const bf16* rows[kMostLanes];
  };

  struct Context {
    ucontext_t state;
    std::vector<char> stack = std::vector<char>(1 << 16);
    AsyncCopies copies = {};
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

  template <typename T>
  void copy(T* to, const T* from, bool exists) const {
    copies().start(to, from, exists);
  }
  void commit() const { copies().commit(); }
  void wait_but_last() const { copies().wait_but_last(); }

  void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) const {
    Warp& warp = this->warp();
    for (int i = 0; i < 4; ++i) warp.a[lane()][i] = a[i];
    for (int i = 0; i < 2; ++i) warp.b[lane()][i] = b[i];
    wait_for(warp);
    for (int i = 0; i < 4; ++i) {
      const int row = lane() / 4 + i / 2 * 8, col = lane() % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) c[i] += element_a(warp, row, k) * element_b(warp, k, col);
    }
    wait_for(warp);
  }

  /// Emulates ldmatrix.x2.trans.
  void load_down(std::uint32_t (&b)[2], const bf16* row) const {
    Warp& warp = this->warp();
    warp.rows[lane()] = row;
    wait_for(warp);
    for (int i = 0; i < 2; ++i) {
      const int first = 8 * i + lane() % 4 * 2, col = lane() / 4;
      b[i] = warp.rows[first][col].bits | static_cast<std::uint32_t>(warp.rows[first + 1][col].bits)
                                              << 16;
    }
    wait_for(warp);
  }

 private:
  AsyncCopies& copies() const { return block_.contexts_[index_].copies; }
  Warp& warp() const { return block_.warps_[index_ / block_.lanes_]; }
  int lane() const { return index_ % block_.lanes_; }
  void wait_for(Warp& warp) const { block_.wait(warp.barrier, block_.lanes_); }

  static float half(std::uint32_t word, int which) {
    return get(bf16{static_cast<std::uint16_t>(word >> (16 * which))});
  }
  static float element_a(const Warp& warp, int row, int k) {
    const int holder = row % 8 * 4 + k % 8 / 2, place = k / 8 * 2 + row / 8;
    return half(warp.a[holder][place], k % 2);
  }
  static float element_b(const Warp& warp, int k, int col) {
    const int holder = col * 4 + k % 8 / 2;
    return half(warp.b[holder][k / 8], k % 2);
  }

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
