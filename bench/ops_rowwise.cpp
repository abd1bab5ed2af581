#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <omp.h>

#include "axonn/ops/backend.h"

#include "bench/measure.h"

// How near is each row-wise operation to what bounds it? For each operation, type, row length and
// size (in the second caches and in memory): the time, the bytes of its arguments moved once a
// second, and the share that the lower of two bounds is of that:
//
//   stream  the same bytes through the same number of read and written streams, with ordinary
//           stores, in a loop that computes next to nothing, in a team of the same threads that is
//           started the same way. The two are timed in turn, in cache ten calls of each at a time,
//           so that both find there what they left.
//   vector  the operation's vector instructions (on 16 floats; loads and stores not counted) on
//           this machine's units, all threads busy: products at the rate of fused multiply-adds,
//           divisions and roots at theirs, and all of them together at the rate at which
//           instructions begin; the slowest of these counts. The counts are those of the
//           kernels' formulas: turning bf16 into f32 takes 2 (the zeros, the shift), back a half
//           (an instruction rounds 32), exponential() 9 products and 5 others.
//
// Both are limits that no kernel passes, unless its loads hit caches where the stream's do not.
// Rows come out even over the threads, so that none waits for another's last row.
//
// Usage: bench_ops_rowwise [THREADS] [NAME: operations whose name holds it] [ROW LENGTH].

namespace {

using namespace axonn;
using bench::Memory;
using bench::Streams;
using bench::VectorWork;

constexpr std::int64_t kVocabulary = 50304, kInCache = 1 << 20, kInMemory = 96 << 20;
constexpr int kExpMultiplies = 9, kExpOthers = 5;

/// One operation, ready to run on arguments of some size.
struct Case {
  std::string name;
  std::int64_t elements, bytes;  ///< of the work, and what its arguments move
  Streams streams;
  VectorWork work;  ///< of 16 elements
  std::function<void()> run;
};

/// Makes the cases of one type whose arguments take about `bytes`.
class Cases {
 public:
  Cases(Backend& backend, Memory& memory, DType type, std::int64_t bytes, int threads)
      : backend_(backend),
        memory_(memory),
        type_(type),
        bytes_(bytes),
        threads_(threads),
        b_(bytes_of(type)),
        get_(type == DType::bf16 ? 2 : 0),
        put_(type == DType::bf16 ? 0.5 : 0) {}

  std::vector<std::function<Case(std::int64_t)>> by_row();
  std::vector<std::function<Case()>> flat();

 private:
  std::int64_t rows(std::int64_t C, std::int64_t row_bytes) const {
    return std::max<std::int64_t>(bytes_ / (C * row_bytes) / threads_, 2) * threads_;
  }
  View f32(std::int64_t R, std::int64_t C) { return memory_.view(R, C, DType::f32); }
  View typed(std::int64_t R, std::int64_t C) { return memory_.view(R, C, type_); }

  Case norm(std::int64_t C, const std::string& which);
  Case sums(std::int64_t C, const std::string& which);
  Case embedding(std::int64_t C, bool backward);
  Case loss(bool backward);
  Case elementwise(const std::string& which);
  Case optimizer(bool adam);
  Case squares();

  Backend& backend_;
  Memory& memory_;
  DType type_;
  std::int64_t bytes_, threads_, b_;
  double get_, put_;  ///< instructions that take 16 elements from memory, and to it
};

Case Cases::norm(std::int64_t C, const std::string& which) {
  const int arrays = which == "row_moments"           ? 1
                     : which == "add_moments"         ? 3
                     : which == "layer_norm_backward" ? 4
                                                      : 2;
  const std::int64_t R = rows(C, arrays * b_), n = R * C;
  const View x = typed(R, C), y = typed(arrays > 1 ? R : 1, C), w = typed(1, C), stats = f32(R, 2),
             out = f32(R, 2);
  Backend& to = backend_;
  if (which == "row_moments")
    return {which, n, b_ * n, {1, 0, 0}, {1, get_ + 2}, [=, &to] { to.row_moments(out, x); }};
  if (which == "layer_norm")
    return {which, n, 2 * b_ * n, {1, 0, 1}, {2, 3 * get_ + 1 + put_}, [=, &to] {
              to.layer_norm(y, x, w, w, stats);
            }};
  if (which == "layer_norm_sums")
    return {which, n, 2 * b_ * n, {2, 0, 0}, {2, 3 * get_ + 2}, [=, &to] {
              to.layer_norm_sums(out, y, x, w, stats);
            }};
  const View dx = typed(R, C), residual = typed(R, C);
  if (which == "add_moments")
    return {which, n, 3 * b_ * n, {2, 0, 1}, {1, 3 * get_ + 3 + put_}, [=, &to] {
              to.add_moments(dx, out, x, y);
            }};
  const NormBackward args{.d_inp = dx,
                          .d_out = y,
                          .inp = x,
                          .weight = w,
                          .stats = stats,
                          .sums = out,
                          .residual = residual,
                          .width = C};
  return {which, n, 4 * b_ * n, {3, 0, 1}, {3, 4 * get_ + 1 + put_}, [=, &to] {
            to.layer_norm_backward(args);
          }};
}

Case Cases::sums(std::int64_t C, const std::string& which) {
  const bool weights = which != "column_sum";
  const std::int64_t R = rows(C, (weights ? 2 : 1) * b_), n = R * C;
  const View x = typed(R, C), out = f32(1, C), bias = f32(1, C);
  Backend& to = backend_;
  if (!weights)
    return {which, n, b_ * n, {1, 0, 0}, {0, get_ + 1}, [=, &to] { to.column_sum(out, x); }};
  const View d_out = typed(R, C), stats = f32(R, 2);
  return {which, n, 2 * b_ * n, {2, 0, 0}, {2, 2 * get_ + 2}, [=, &to] {
            to.layer_norm_weight_backward(out, bias, d_out, x, stats);
          }};
}

Case Cases::embedding(std::int64_t C, bool backward) {
  const std::int64_t R = rows(C, backward ? b_ + 8 : 3 * b_), n = R * C, T = std::min(R, R / 4 + 1),
                     V = 2 * R;
  const View ids = memory_.ids(R, V), x = typed(R, C);
  Backend& to = backend_;
  if (backward)
    return {"embedding_backward",
            n,
            (b_ + 8) * n,
            {1, 1, 0},
            {0, get_ + 1},
            [=, &to, table = f32(V, C)] { to.embedding_backward(table, x, ids, 0); }};
  return {"embedding",
          n,
          3 * b_ * n,
          {2, 0, 1},
          {0, 2 * get_ + 1 + put_},
          [=, &to, table = typed(V, C), positions = typed(T, C)] {
            to.embedding(x, ids, table, 0, positions);
          }};
}

Case Cases::loss(bool backward) {
  const std::int64_t R = rows(kVocabulary, (backward ? 2 : 1) * b_), n = R * kVocabulary;
  const View logits = typed(R, kVocabulary), targets = memory_.ids(R, kVocabulary),
             stats = f32(R, 3), lse = f32(R, 1);
  Backend& to = backend_;
  if (!backward)
    return {"softmax_stats",
            n,
            b_ * n,
            {1, 0, 0},
            {kExpMultiplies, 2 * get_ + 3 + kExpOthers},
            [=, &to] {
              to.softmax_stats(stats, logits, targets, {0, kVocabulary - 47});
            }};
  return {"cross_entropy_backward",
          n,
          2 * b_ * n,
          {1, 0, 1},
          {1 + kExpMultiplies, get_ + 4 + kExpOthers + put_},
          [=, &to, out = typed(R, kVocabulary)] {
            to.cross_entropy_backward({out, logits, lse, targets, {0, kVocabulary - 47}, 1e-3f});
          }};
}

Case Cases::elementwise(const std::string& which) {
  const int arrays = which == "add" || which == "gelu_backward" ? 3 : 2;
  const std::int64_t n = rows(1024, arrays * b_) * 1024;
  const View a = typed(1, n), out = typed(1, n);
  Backend& to = backend_;
  if (which == "gelu")
    return {which,
            n,
            2 * b_ * n,
            {1, 0, 1},
            {4 + kExpMultiplies, get_ + 1 + kExpOthers + put_, 1},
            [=, &to] { to.gelu(out, a); }};
  if (which == "cast")  // to the other type
    return {which,
            n,
            6 * n,
            {1, 0, 1},
            {0, get_ > 0 ? get_ : 0.5},
            [=, &to, other = memory_.view(1, n, get_ > 0 ? DType::f32 : DType::bf16)] {
              to.cast(other, a);
            }};
  const View b = typed(1, n);
  if (which == "add")
    return {
        which, n, 3 * b_ * n, {2, 0, 1}, {0, 2 * get_ + 1 + put_}, [=, &to] { to.add(out, a, b); }};
  return {which,
          n,
          3 * b_ * n,
          {2, 0, 1},
          {8 + kExpMultiplies, 2 * get_ + 2 + kExpOthers + put_, 1},
          [=, &to] { to.gelu_backward(out, b, a); }};
}

Case Cases::optimizer(bool adam) {
  // The compute copy of an f32 model is the master copy itself.
  const bool copy = type_ == DType::bf16;
  const std::int64_t each = (adam ? 28 : 12) + (copy ? 2 : 0), n = rows(1024, each) * 1024;
  const View master = f32(1, n), gradient = f32(1, n), one = f32(1, 1),
             out = copy ? typed(1, n) : master;
  Backend& to = backend_;
  if (!adam)
    return {"sgd", n, each * n, {1, 1, copy ? 1 : 0}, {2, 1 + put_}, [=, &to] {
              to.sgd({.master = master,
                      .gradient = gradient,
                      .out = out,
                      .scale = one,
                      .lr = 1e-3f,
                      .decayed = n});
            }};
  const AdamW args{.master = master,
                   .first = f32(1, n),
                   .second = f32(1, n),
                   .gradient = gradient,
                   .out = out,
                   .scale = one,
                   .lr = 1e-3f,
                   .decayed = n};
  return {"adamw",
          n,
          each * n,
          {1, 3, copy ? 1 : 0},
          {9, 2 + put_, 1, 1},
          [=, &to] { to.adamw(args); }};
}

Case Cases::squares() {
  const std::int64_t n = rows(1024, b_) * 1024;
  const View x = typed(1, n), total = memory_.view(1, 1, DType::f64);
  // In double, of which a register holds 8: two conversions and two multiply-adds for 16 elements.
  return {"squared_sum", n,
          b_ * n,        {1, 0, 0},
          {2, get_ + 2}, [=, &to = backend_] { to.squared_sum(total, x); }};
}

std::vector<std::function<Case(std::int64_t)>> Cases::by_row() {
  std::vector<std::function<Case(std::int64_t)>> all;
  for (const char* name :
       {"row_moments", "add_moments", "layer_norm", "layer_norm_sums", "layer_norm_backward"})
    all.emplace_back([this, name](std::int64_t C) { return norm(C, name); });
  for (const char* name : {"layer_norm_weight_backward", "column_sum"})
    all.emplace_back([this, name](std::int64_t C) { return sums(C, name); });
  for (bool backward : {false, true})
    all.emplace_back([this, backward](std::int64_t C) { return embedding(C, backward); });
  return all;
}

std::vector<std::function<Case()>> Cases::flat() {
  std::vector<std::function<Case()>> all;
  for (const char* name : {"gelu", "gelu_backward", "add", "cast"})
    all.emplace_back([this, name] { return elementwise(name); });
  for (bool backward : {false, true}) all.emplace_back([this, backward] { return loss(backward); });
  for (bool adam : {true, false}) all.emplace_back([this, adam] { return optimizer(adam); });
  all.emplace_back([this] { return squares(); });
  return all;
}

/// Prints one line and returns the share reached.
double measure(const Case& c, Memory& memory, int threads, const bench::VectorRates& rates,
               const std::string& what) {
  const auto stream = bench::stream(memory, threads, c.streams, c.bytes);
  const bool cached = c.bytes <= 16 << 20;
  const auto [time, streaming] = bench::best_of(cached ? 40 : 7, c.run, stream, cached ? 10 : 1);
  const double vector = c.work.seconds(static_cast<double>(c.elements) / 16, rates);
  const double share = std::max(streaming, vector) / time;
  std::printf(
      "%-27s %s %10.1f us %6.1f GB/s  stream %6.1f GB/s %4.0f %%  vector %4.0f %%  %s %4.0f %%\n",
      c.name.c_str(), what.c_str(), time * 1e6, static_cast<double>(c.bytes) / time / 1e9,
      static_cast<double>(c.bytes) / streaming / 1e9, 100 * streaming / time, 100 * vector / time,
      share < 0.85 ? "BELOW" : "near ", 100 * share);
  return share;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const std::string wanted = argc > 2 ? argv[2] : "";
  const std::int64_t only = argc > 3 ? std::atoll(argv[3]) : 0;
  const auto backend = make_cpu_backend(threads);
  const auto rates = bench::vector_rates(threads);
  std::printf(
      "%d threads; instructions on 16 floats, in giga a second: any %.2f, multiply-add %.2f, "
      "division %.2f, root %.2f\n",
      threads, rates.issue, rates.multiply, rates.divide, rates.root);
  Memory memory;
  int count = 0, near = 0;
  const auto run = [&](const Case& c, const std::string& what) {
    if (c.name.find(wanted) != std::string::npos) {
      near += measure(c, memory, threads, rates, what) >= 0.85;
      ++count;
    }
    memory.clear();
  };
  for (std::int64_t bytes : {kInCache, kInMemory})
    for (DType type : {DType::f32, DType::bf16}) {
      Cases cases(*backend, memory, type, bytes, threads);
      const std::string kind = std::string(bytes == kInCache ? "cache  " : "memory ") +
                               std::string(name_of(type)) + (type == DType::f32 ? "  " : " ");
      for (const auto& make : cases.by_row())
        for (std::int64_t C : {768, 1600, 2048, 4096, 8192, 16384})
          if (only == 0 || only == C) {
            char length[16];
            std::snprintf(length, sizeof length, "%5d", static_cast<int>(C));
            run(make(C), kind + length);
          }
      for (const auto& make : cases.flat()) run(make(), kind + "     ");
    }
  std::printf("%d of %d reach 85 %%\n", near, count);
}
