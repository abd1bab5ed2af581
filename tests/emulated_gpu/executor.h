#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>
#include <typeinfo>

/// Threads of a warp: 32, or 64 in a build that emulates AMD's.
#ifndef AXONN_EMULATED_WARP
#define AXONN_EMULATED_WARP 32
#endif

/// What a kernel's threads call, for emulated GPUs (platform.h). cuda_runtime_api.h includes it.
///
/// All threads of a block, or of a warp, must come to the same line for each of these calls (unlike
/// on a GPU, threads that have ended count as missing); anything else is a violation. Barriers of a
/// block order memory, exchanges within a warp do not.
namespace emulated_gpu {

inline constexpr int kWarpThreads = AXONN_EMULATED_WARP;

using Line = std::source_location;

/// A barrier of the block. Returns whether any of its threads passes true.
bool sync_threads(bool value, Line line);

/// Gets the value of lane `lane ^ mask`, which must exist; `type` must be that of the other lanes.
std::uint64_t shuffle_xor(std::uint64_t value, int mask, const std::type_info& type, Line line);
/// A bit for each lane that passes true.
std::uint64_t lanes_with(bool is, Line line);
/// c += a · b as the PTX ISA has it for mma.m16n8k16 of bf16.
void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Line line);
/// c += a · b as AMD's ISA has it for V_MFMA_F32_16X16X16_BF16_1K.
void mfma(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[2], Line line);
/// The elements of 2 bytes that ldmatrix.x4 gives to this lane, with .trans if `transposed` is set:
/// two for each of four words. The caller loads them. `row`: 16 aligned bytes of shared memory.
std::array<const void*, 8> elements_to_load(const void* row, bool transposed, Line line);

/// The shared memory that the launch gives to each block, which must have so many bytes.
void* dynamic_shared(std::size_t bytes, std::size_t alignment, Line line);

/// The block's object for `site`. Its bytes are 0xff in each new block, and it is not more aligned
/// than it has to be.
void* shared_object(const void* site, std::size_t bytes, std::size_t alignment, Line line);

template <typename T, typename Site>
T& shared(Site, Line line = Line::current()) {
  static_assert(std::is_trivially_default_constructible_v<T> &&
                std::is_trivially_destructible_v<T>);
  static char site;
  return *static_cast<T*>(shared_object(&site, sizeof(T), alignof(T), line));
}

template <typename T>
T& launched_shared(Line line = Line::current()) {
  static_assert(std::is_trivially_default_constructible_v<T> &&
                std::is_trivially_destructible_v<T>);
  return *static_cast<T*>(dynamic_shared(sizeof(T), alignof(T), line));
}

}  // namespace emulated_gpu

inline void __syncthreads(emulated_gpu::Line line = emulated_gpu::Line::current()) {
  emulated_gpu::sync_threads(false, line);
}
inline int __syncthreads_or(int value, emulated_gpu::Line line = emulated_gpu::Line::current()) {
  return emulated_gpu::sync_threads(value != 0, line) ? 1 : 0;
}
