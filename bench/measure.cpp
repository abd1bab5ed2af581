#include "bench/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <type_traits>

#include "axonn/compute/ops/cpu/matmul/block_matmul.h"
#include "axonn/foundation/base/check.h"

namespace axonn::bench {

namespace {

/// Sixteen floats: one register with AVX-512, several without.
using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
using Words = std::uint32_t __attribute__((vector_size(64)));

constexpr std::int64_t kMemory = std::int64_t{4} << 30;  // only used pages take memory

double seconds(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr int kChains = 16;

/// 10^9 instructions of `step` per second on kChains independent registers, all threads together.
template <typename Register = Lanes, typename Step>
double rate(int threads, Step step) {
  using Element = std::remove_reference_t<decltype(Register{}[0])>;
  constexpr int kTurns = 50'000;
  double sink = 0;
  const double best = best_of(300, [&] {
#pragma omp parallel num_threads(threads) reduction(+ : sink)
    {
      Register x[kChains];
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) x[i] = Register{} + static_cast<Element>(1 + i);
      for (int turn = 0; turn < kTurns; ++turn)
#pragma GCC unroll 16
        for (int i = 0; i < kChains; ++i) {
          if constexpr (std::is_invocable_v<Step, Register, int>)
            x[i] = step(x[i], i);
          else
            x[i] = step(x[i]);
        }
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) sink += static_cast<double>(x[i][0]);
    }
  });
  AXONN_CHECK(!std::isnan(sink), "a rate was measured on NaN");
  return 1e-9 * kChains * kTurns * threads / best;
}

Lanes root(Lanes x) {
  for (int i = 0; i < cpu::kLanes; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

template <int Reads, int Updates, int Writes>
void move(const float* const* read, float* const* update, float* const* write, std::int64_t begin,
          std::int64_t end) {
  std::array<const float*, Reads + 1> r{};
  std::array<float*, Updates + 1> u{};
  std::array<float*, Writes + 1> w{};
  std::copy_n(read, Reads, r.begin());
  std::copy_n(update, Updates, u.begin());
  std::copy_n(write, Writes, w.begin());
  const auto lanes = [](auto* p) { return reinterpret_cast<Lanes*>(const_cast<float*>(p)); };
  Lanes sums[4] = {};
  for (std::int64_t i = begin; i < end; i += 4 * cpu::kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const std::int64_t at = i + v * cpu::kLanes;
      Lanes x = Writes + Updates ? Lanes{} : sums[v];
#pragma GCC unroll 8
      for (int s = 0; s < Reads; ++s) x += *lanes(r[s] + at);
#pragma GCC unroll 8
      for (int s = 0; s < Updates; ++s) *lanes(u[s] + at) = x += *lanes(u[s] + at);
#pragma GCC unroll 8
      for (int s = 0; s < Writes; ++s) *lanes(w[s] + at) = x;
      sums[v] = x;
    }
  }
  const Lanes sum = sums[0] + sums[1] + sums[2] + sums[3];
  asm volatile("" : : "m"(sum));  // in memory, since no register of AVX2 holds 16 lanes
}

using Move = void (*)(const float* const*, float* const*, float* const*, std::int64_t,
                      std::int64_t);

Move move_of(Streams s) {
  const struct {
    Streams streams;
    Move move;
  } kMoves[] = {
      {{1, 0, 0}, move<1, 0, 0>}, {{2, 0, 0}, move<2, 0, 0>}, {{0, 0, 1}, move<0, 0, 1>},
      {{1, 0, 1}, move<1, 0, 1>}, {{2, 0, 1}, move<2, 0, 1>}, {{3, 0, 1}, move<3, 0, 1>},
      {{0, 1, 0}, move<0, 1, 0>}, {{1, 1, 0}, move<1, 1, 0>}, {{1, 1, 1}, move<1, 1, 1>},
      {{1, 3, 0}, move<1, 3, 0>}, {{1, 3, 1}, move<1, 3, 1>},
  };
  for (const auto& known : kMoves)
    if (known.streams.read == s.read && known.streams.update == s.update &&
        known.streams.write == s.write)
      return known.move;
  throw Error("no loop for streams of " + std::to_string(s.read) + " reads, " +
              std::to_string(s.update) + " updates and " + std::to_string(s.write) + " writes");
}

}  // namespace

Memory::Memory() : begin_(static_cast<std::byte*>(device_->allocate(kMemory))) {}
Memory::~Memory() { device_->release(begin_, kMemory); }

View Memory::view(std::int64_t rows, std::int64_t cols, DType dtype) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t bytes = (rows * cols * bytes_of(dtype) + kLine - 1) / kLine * kLine;
  AXONN_CHECK(used_ + bytes <= kMemory, "the arguments need more than ", kMemory, " bytes");
  auto* data = reinterpret_cast<float*>(begin_ + used_);
  used_ += bytes;
  const auto fill = [](auto* to, std::int64_t count) {
    constexpr std::int64_t kPeriod = 251;
    for (std::int64_t i = 0; i < std::min(kPeriod, count); ++i)
      put(to[i], static_cast<float>(i + 1) / 256);
    for (std::int64_t i = kPeriod; i < count; ++i) to[i] = to[i - kPeriod];
  };
  if (dtype == DType::bf16)
    fill(reinterpret_cast<bf16*>(data), bytes / 2);
  else
    fill(data, bytes / 4);
  return {data, dtype, rows, cols, cols};
}

View Memory::ids(std::int64_t count, std::int64_t bound) {
  const View ids = view(1, count, DType::i32);
  for (std::int64_t i = 0; i < count; ++i)
    ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % bound);
  return ids;
}

double VectorWork::seconds(double registers, const VectorRates& rates) const {
  const double all = multiplies + sums + others + divisions + roots;
  const double busiest =
      std::max({(multiplies + divisions * rates.beside) / rates.multiply, sums / rates.add,
                divisions / rates.divide + roots / rates.root, all / rates.issue});
  return 1e-9 * registers * busiest;
}

VectorRates vector_rates(int threads) {
  const Lanes half = Lanes{} + 0.5f, one = Lanes{} + 1.0f;
  VectorRates rates{.multiply = rate(threads, [=](Lanes x) { return x * half + one; }),
                    .add = rate(threads, [=](Lanes x) { return x + half; }),
                    .issue = rate<Words>(threads, [](Words x) { return x + 3; }),
                    .divide = rate(threads, [=](Lanes x) { return one / x; }),
                    .root = rate(threads, root)};
  constexpr int kDividing = kChains / 2, kProducts = 8;  // products for every other register
  const double mixed = rate(threads, [=](Lanes x, int i) {
    if (i % 2 == 0) return one / x;
#pragma GCC unroll 8
    for (int k = 0; k < kProducts; ++k) x = x * half + one;
    return x;
  });
  const double slots = kChains * rates.multiply / mixed;  // of one turn through all registers
  rates.beside = std::max((slots - (kChains - kDividing) * kProducts) / kDividing, 0.0);
  return rates;
}

Pair best_of(int repetitions, const std::function<void()>& first,
             const std::function<void()>& second, int burst) {
  Pair best{1e9, 1e9};
  const auto time = [&](const std::function<void()>& run, double& least) {
    if (burst > 1) run();
    for (int i = burst > 1; i < burst; ++i) least = std::min(least, seconds(run));
  };
  first();
  second();
  for (int i = 0; i < repetitions; ++i) {
    time(first, best.first);
    time(second, best.second);
  }
  return best;
}

double best_of(int repetitions, const std::function<void()>& run) {
  return best_of(repetitions, run, [] {}).first;
}

std::function<void()> stream(Memory& memory, int threads, Streams streams, std::int64_t bytes) {
  const int moves = streams.read + 2 * streams.update + streams.write;
  constexpr std::int64_t kPart = 1024;  // floats; a thread's share is whole parts
  const std::int64_t parts = std::max<std::int64_t>(bytes / moves / 4 / kPart, 1);
  const auto take = [&](int count) {
    std::vector<float*> list;
    for (int i = 0; i < count; ++i)
      list.push_back(memory.view(1, parts * kPart, DType::f32).as<float>());
    return list;
  };
  const Move move = move_of(streams);
  return
      [=, read = take(streams.read), update = take(streams.update), write = take(streams.write)] {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int t = 0; t < threads; ++t) {
          const std::int64_t begin = parts * t / threads * kPart,
                             end = parts * (t + 1) / threads * kPart;
          move(read.data(), update.data(), write.data(), begin, end);
        }
      };
}

}  // namespace axonn::bench
