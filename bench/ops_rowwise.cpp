#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <omp.h>
#include <unistd.h>

#include "axonn/compute/ops/backend.h"

#include "bench/measure.h"

// Compares each row-wise operation with its bounds, for each type, row length and size: in the L2
// caches ("cache"); in the last-level cache, if that is large ("last"); and in memory ("memory"),
// at least twice the last-level cache, which may be 260 MiB. Prints the time, the bytes of the
// arguments per second, and the share of the time that the slower bound takes. The bounds are:
//
//   stream  the same bytes through the same number of read and written streams, by ordinary stores,
//           in a loop with next to no arithmetic, on the same threads, started in the same way.
//           Operation and stream are timed in turn, in cache ten calls of each at a time, so that
//           both find there what they left.
//   vector  the operation's vector instructions (on 16 floats, without loads and stores) on this
//           machine's units, all threads busy: products at the rate of fused multiply-adds; sums,
//           maxima and roundings at that of sums; divisions and roots at theirs; and all of them
//           together at the issue rate. The slowest of these counts. A division also displaces
//           products; a loop of both measures how many. Instructions are counted from the kernels'
//           formulas: bf16 to f32 takes 1 (words are interleaved with zeros), f32 to bf16 a half
//           (an instruction rounds 32), exponential() 8 products and 3 others, power_of_two() 6 and
//           5, that of GELU 5 and 5.
//
// No kernel is faster than either bound, unless its loads hit caches where the stream's do not. The
// number of rows is a multiple of the number of threads, so that none waits for another's last row.
//
// Usage: bench_ops_rowwise [THREADS [WORD...]]. Runs the cases whose lines have all these words, as
// in: cache bf16 768 layer_norm.

namespace {

using namespace axonn;
using bench::Streams;
using bench::VectorWork;

constexpr std::int64_t kVocabulary = 50304;
constexpr int kExpMultiplies = 8, kExpSums = 3, kPowerMultiplies = 6, kPowerSums = 5;

/// A size of an operation's arguments.
struct Size {
  std::string name;
  std::int64_t bytes;
  int repetitions, burst;
};

/// The sizes for this machine. An operation and its stream together take half of the last cache.
std::vector<Size> sizes() {
  constexpr std::int64_t kSmall = 16 << 20, kLarge = 96 << 20;
  const std::int64_t last = sysconf(_SC_LEVEL3_CACHE_SIZE);  // not positive if unknown
  std::vector<Size> list{{"cache", 1 << 20, 40, 10}};
  if (last / 4 >= kSmall) list.push_back({"last", last / 4, 7, 2});
  list.push_back({"memory", std::max(2 * last, kLarge), 7, 1});
  return list;
}

/// An operation with arguments of some size, ready to run.
struct Case {
  std::string name;
  std::int64_t elements, bytes;  ///< elements of the work; bytes that the arguments move
  Streams streams;
  VectorWork work;  ///< per 16 elements
  RowwiseOperation operation;
};

/// A function that makes a case, which takes memory only then.
struct Named {
  std::string name;
  std::int64_t length;  ///< of a row; 0 if there is only one row
  std::function<Case()> make;
};

/// Makes the cases of one type, with arguments of about `bytes`.
class Cases {
 public:
  Cases(bench::Memory& memory, DType type, std::int64_t bytes, int threads)
      : memory_(memory),
        type_(type),
        bytes_(bytes),
        threads_(threads),
        b_(bytes_of(type)),
        get_(type == DType::bf16 ? 1 : 0),
        put_(type == DType::bf16 ? 0.5 : 0) {}

  std::vector<Named> all();

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

  bench::Memory& memory_;
  DType type_;
  std::int64_t bytes_, threads_, b_;
  double get_, put_;  ///< instructions to load 16 elements, and to store them
};

Case Cases::norm(std::int64_t C, const std::string& which) {
  const int arrays = which == "row_moments"           ? 1
                     : which == "add_moments"         ? 3
                     : which == "layer_norm_backward" ? 4
                                                      : 2;
  const std::int64_t R = rows(C, arrays * b_), n = R * C;
  const View x = typed(R, C), y = typed(arrays > 1 ? R : 1, C), w = typed(1, C), stats = f32(R, 2),
             out = f32(R, 2);
  if (which == "row_moments")
    return {which, n, b_ * n, {1, 0, 0}, {1, 2, get_}, ops::RowMoments{out, x}};
  if (which == "layer_norm")
    return {which,
            n,
            2 * b_ * n,
            {1, 0, 1},
            {2, 1 + put_, 3 * get_},
            ops::LayerNorm{y, x, w, w, stats}};
  if (which == "layer_norm_sums")
    return {
        which, n, 2 * b_ * n, {2, 0, 0}, {2, 2, 3 * get_}, ops::LayerNormSums{out, y, x, w, stats}};
  const View dx = typed(R, C), residual = typed(R, C);
  if (which == "add_moments")
    return {
        which, n, 3 * b_ * n, {2, 0, 1}, {1, 3 + put_, 3 * get_}, ops::AddMoments{dx, out, x, y}};
  const ops::LayerNormBackward args{.d_inp = dx,
                                    .d_out = y,
                                    .inp = x,
                                    .weight = w,
                                    .stats = stats,
                                    .sums = out,
                                    .residual = residual,
                                    .width = C};
  return {which, n, 4 * b_ * n, {3, 0, 1}, {3, 1 + put_, 4 * get_}, args};
}

Case Cases::sums(std::int64_t C, const std::string& which) {
  const bool weights = which != "column_sum";
  const std::int64_t R = rows(C, (weights ? 2 : 1) * b_), n = R * C;
  const View x = typed(R, C), out = f32(1, C), bias = f32(1, C);
  if (!weights) return {which, n, b_ * n, {1, 0, 0}, {0, 1, get_}, ops::ColumnSum{out, x}};
  const View d_out = typed(R, C), stats = f32(R, 2);
  return {which,
          n,
          2 * b_ * n,
          {2, 0, 0},
          {2, 2, 2 * get_},
          ops::LayerNormWeightBackward{out, bias, d_out, x, stats}};
}

Case Cases::embedding(std::int64_t C, bool backward) {
  const std::int64_t R = rows(C, backward ? b_ + 8 : 3 * b_), n = R * C, T = std::min(R, R / 4 + 1),
                     V = 2 * R;
  const View ids = memory_.ids(R, V), x = typed(R, C);
  if (backward)
    return {"embedding_backward", n,
            (b_ + 8) * n,         {1, 1, 0},
            {0, 1, get_},         ops::EmbeddingBackward{f32(V, C), x, ids, 0}};
  return {"embedding",
          n,
          3 * b_ * n,
          {2, 0, 1},
          {0, 1 + put_, 2 * get_},
          ops::Embedding{.out = x, .ids = ids, .table = typed(V, C), .learned = typed(T, C)}};
}

Case Cases::loss(bool backward) {
  const std::int64_t R = rows(kVocabulary, (backward ? 2 : 1) * b_), n = R * kVocabulary;
  const View logits = typed(R, kVocabulary), targets = memory_.ids(R, kVocabulary),
             stats = f32(R, 3), lse = f32(R, 1);
  if (!backward)
    return {"softmax_stats",
            n,
            b_ * n,
            {1, 0, 0},
            {kPowerMultiplies, 2 + kPowerSums, get_},
            ops::SoftmaxStats{stats, logits, targets, {0, kVocabulary - 47}}};
  return {"cross_entropy_backward",
          n,
          2 * b_ * n,
          {1, 0, 1},
          {1 + kExpMultiplies, 1 + kExpSums + put_, get_},
          ops::CrossEntropyBackward{
              typed(R, kVocabulary), logits, lse, targets, {0, kVocabulary - 47}, 1e-3f}};
}

Case Cases::elementwise(const std::string& which) {
  const int arrays = which == "add" || which == "gelu_backward" ? 3 : 2;
  const std::int64_t n = rows(1024, arrays * b_) * 1024;
  const View a = typed(1, n), out = typed(1, n);
  if (which == "gelu")
    return {which, n, 2 * b_ * n, {1, 0, 1}, {8, 6 + put_, get_, 1}, ops::Gelu{out, a}};
  if (which == "cast")  // to the other type
    return {which,
            n,
            6 * n,
            {1, 0, 1},
            {0, get_ > 0 ? 0 : 0.5, get_},
            ops::Cast{memory_.view(1, n, get_ > 0 ? DType::f32 : DType::bf16), a}};
  const View b = typed(1, n);
  if (which == "add")
    return {which, n, 3 * b_ * n, {2, 0, 1}, {0, 1 + put_, 2 * get_}, ops::Add{out, a, b}};
  return {
      which, n, 3 * b_ * n, {2, 0, 1}, {13, 7 + put_, 2 * get_, 1}, ops::GeluBackward{out, b, a}};
}

Case Cases::optimizer(bool adam) {
  // The compute copy of an f32 model is the master copy itself.
  const bool copy = type_ == DType::bf16;
  const std::int64_t each = (adam ? 28 : 12) + (copy ? 2 : 0), n = rows(1024, each) * 1024;
  const View master = f32(1, n), gradient = f32(1, n), one = f32(1, 1),
             out = copy ? typed(1, n) : master;
  if (!adam)
    return {"sgd",
            n,
            each * n,
            {1, 1, copy ? 1 : 0},
            {2, 1 + put_, 0},
            ops::Sgd{.master = master,
                     .gradient = gradient,
                     .out = out,
                     .scale = one,
                     .lr = 1e-3f,
                     .decayed = n}};
  const ops::AdamW args{.master = master,
                        .first = f32(1, n),
                        .second = f32(1, n),
                        .gradient = gradient,
                        .out = out,
                        .scale = one,
                        .lr = 1e-3f,
                        .decayed = n};
  return {"adamw", n, each * n, {1, 3, copy ? 1 : 0}, {9, 2 + put_, 0, 1, 1}, args};
}

Case Cases::squares() {
  const std::int64_t n = rows(1024, b_) * 1024;
  const View x = typed(1, n), total = memory_.view(1, 1, DType::f64);
  // In double, 8 to a register: two conversions and two multiply-adds for 16 elements.
  return {"squared_sum", n, b_ * n, {1, 0, 0}, {2, 2, get_}, ops::SquaredSum{total, x}};
}

std::vector<Named> Cases::all() {
  std::vector<Named> list;
  const auto by_row = [&](const std::string& name, const auto& make) {
    for (std::int64_t C : {768, 1600, 2048, 4096, 8192, 16384})
      list.push_back({name, C, [=] { return make(C); }});
  };
  for (const char* name :
       {"row_moments", "add_moments", "layer_norm", "layer_norm_sums", "layer_norm_backward"})
    by_row(name, [=, this](std::int64_t C) { return norm(C, name); });
  for (const char* name : {"layer_norm_weight_backward", "column_sum"})
    by_row(name, [=, this](std::int64_t C) { return sums(C, name); });
  by_row("embedding", [this](std::int64_t C) { return embedding(C, false); });
  by_row("embedding_backward", [this](std::int64_t C) { return embedding(C, true); });
  for (const char* name : {"gelu", "gelu_backward", "add", "cast"})
    list.push_back({name, 0, [=, this] { return elementwise(name); }});
  list.push_back({"softmax_stats", 0, [this] { return loss(false); }});
  list.push_back({"cross_entropy_backward", 0, [this] { return loss(true); }});
  list.push_back({"adamw", 0, [this] { return optimizer(true); }});
  list.push_back({"sgd", 0, [this] { return optimizer(false); }});
  list.push_back({"squared_sum", 0, [this] { return squares(); }});
  return list;
}

std::string label(const std::string& name, const Size& size, DType type, std::int64_t length) {
  std::ostringstream out;
  out << std::left << std::setw(27) << name << std::setw(7) << size.name << std::setw(5)
      << name_of(type) << std::right << std::setw(6) << (length > 0 ? std::to_string(length) : "");
  return out.str();
}

/// Whether one of the label's words is `word`.
bool holds(const std::string& label, const std::string& word) {
  std::istringstream words(label);
  return std::find(std::istream_iterator<std::string>(words), {}, word) !=
         std::istream_iterator<std::string>();
}

/// Prints one line and returns the share of the bound that is reached. seconds: of the operation
/// and of its stream.
double report(const Case& c, const std::string& what, const bench::VectorRates& rates,
              const bench::Pair& seconds) {
  const auto [time, streaming] = seconds;
  const double vector = c.work.seconds(static_cast<double>(c.elements) / 16, rates);
  const double share = std::max(streaming, vector) / time;
  std::printf("%s %10.1f us %6.1f GB/s  stream %6.1f GB/s %4.0f %%  vector %4.0f %%  %s %4.0f %%\n",
              what.c_str(), time * 1e6, static_cast<double>(c.bytes) / time / 1e9,
              static_cast<double>(c.bytes) / streaming / 1e9, 100 * streaming / time,
              100 * vector / time, share < 0.85 ? "BELOW" : "near ", 100 * share);
  return share;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  const auto backend = make_cpu_backend(threads);
  const auto rates = bench::vector_rates(threads);
  std::printf(
      "%d threads; 10^9 instructions on 16 floats per second: any %.2f, multiply-add %.2f, sum "
      "%.2f, division %.2f (in place of %.1f multiply-adds), root %.2f\n",
      threads, rates.issue, rates.multiply, rates.add, rates.divide, rates.beside, rates.root);
  bench::Memory memory;
  int all = 0, all_near = 0;
  for (const Size& size : sizes()) {
    int count = 0, near = 0;
    for (DType type : {DType::f32, DType::bf16}) {
      Cases cases(memory, type, size.bytes, threads);
      for (const auto& [name, length, make] : cases.all()) {
        const std::string what = label(name, size, type, length);
        if (!std::ranges::all_of(wanted, [&](const auto& word) { return holds(what, word); }))
          continue;
        const Case made = make();
        const auto stream = bench::stream(memory, threads, made.streams, made.bytes);
        const auto seconds = bench::best_of(
            size.repetitions, [&] { backend->run(made.operation); }, stream, size.burst);
        near += report(made, what, rates, seconds) >= 0.85;
        ++count;
        memory.clear();
      }
    }
    if (count > 0)
      std::printf("%s (%lld MiB): %d of %d reach 85 %%\n", size.name.c_str(),
                  static_cast<long long>(size.bytes >> 20), near, count);
    all += count;
    all_near += near;
  }
  std::printf("%d of %d reach 85 %%\n", all_near, all);
}
