#include "tests/emulated_gpu/fiber.h"

#include <cstdint>

extern "C" {
// Saves the registers that a function must keep on the stack, and its pointer in *at. Restores
// those of `to`. Returns the `from` of the call that comes back.
emulated_gpu::Fiber* emulated_gpu_jump(emulated_gpu::Fiber* from, void* to, void** at);
void emulated_gpu_begin();

// AddressSanitizer's; null in other builds.
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom,
                                                          std::size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* save, const void** bottom,
                                                           std::size_t* bytes);
}

asm(R"(
.pushsection .text
.local emulated_gpu_jump
.type emulated_gpu_jump, @function
emulated_gpu_jump:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdx)
  mov %rsi, %rsp
  mov %rdi, %rax
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulated_gpu_jump, . - emulated_gpu_jump

.local emulated_gpu_begin
.type emulated_gpu_begin, @function
emulated_gpu_begin:
  mov %rbx, %rdi
  mov %rax, %rsi
  call *%rbp
  ud2
.size emulated_gpu_begin, . - emulated_gpu_begin
.popsection
)");

namespace emulated_gpu {

namespace {

/// What a fiber does when another has jumped to it.
void arrive(Fiber& self, Fiber& before) {
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(self.fake_stack, &before.stack, &before.bytes);
}

void start(Fiber* self, Fiber* before) {
  arrive(*self, *before);
  self->entry(*self);
}

}  // namespace

void Fiber::begin(std::size_t unused, void (*f)(Fiber& self)) {
  entry = f;
  const auto end = reinterpret_cast<std::uintptr_t>(stack) + bytes - unused;
  auto* const saved =
      reinterpret_cast<std::uintptr_t*>(end / 16 * 16) - 9;  // rsp % 16 is 0 before the call
  saved[4] = reinterpret_cast<std::uintptr_t>(this);         // rbx
  saved[5] = reinterpret_cast<std::uintptr_t>(&start);       // rbp
  saved[6] = reinterpret_cast<std::uintptr_t>(&emulated_gpu_begin);
  at = saved;
}

void jump(Fiber& from, Fiber& to) {
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.bytes);
  Fiber* const before = emulated_gpu_jump(&from, to.at, &from.at);
  arrive(from, *before);
}

}  // namespace emulated_gpu
