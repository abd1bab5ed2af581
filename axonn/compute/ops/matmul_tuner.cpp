#include "axonn/compute/ops/matmul_tuner.h"

#include <algorithm>
#include <random>

#include "axonn/compute/tensor/arena.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"

namespace axonn {

namespace {

/// To replace the default, a way must be this many times as fast (median of the rounds), and faster
/// in this share of the rounds.
constexpr double kLeastGain = 1.03, kLeastShare = 0.75;
/// A way that takes this many times as long as the best is no finalist; at twice that, it is not
/// timed again.
constexpr double kHopeless = 1.15;
constexpr std::size_t kFinalists = 4;
constexpr double kMatchSeconds = 0.25;  // of each way in a match, within the limits below
constexpr int kLeastRounds = 5, kMostRounds = 15;

/// Operands of one shape: up to eight sets, together larger than most caches, because in a training
/// step, too, a weight was last used long ago.
class Operands {
 public:
  Operands(Backend& backend, const MatmulShape& shape)
      : backend_(backend), arena_(backend.device()) {
    constexpr std::int64_t kBytes = std::int64_t{64} << 20, kMostSets = 8;
    const std::int64_t bytes = (shape.M * shape.K + shape.K * shape.N) * bytes_of(shape.type) +
                               shape.M * shape.N * bytes_of(shape.out_type) *
                                   (1 + shape.gelu_input + shape.gelu_derivative);
    const std::int64_t sets =
        std::clamp<std::int64_t>(kBytes / std::max<std::int64_t>(bytes, 1), 1, kMostSets);
    for (std::int64_t i = 0; i < sets; ++i) add(shape);
  }

  double time_one() {
    const Matmul& product = products_[next_++ % products_.size()];
    Stream& stream = backend_.device().compute();
    stream.synchronize();
    const double start = now_seconds();
    backend_.matmul(product);
    stream.synchronize();
    return now_seconds() - start;
  }

 private:
  void add(const MatmulShape& s) {
    Matmul product{.out = filled(s.M, s.N, s.out_type),
                   .a = s.a_transposed ? filled(s.K, s.M, s.type) : filled(s.M, s.K, s.type),
                   .b = s.b_transposed ? filled(s.N, s.K, s.type) : filled(s.K, s.N, s.type),
                   .a_transposed = s.a_transposed,
                   .b_transposed = s.b_transposed,
                   .bias = {},
                   .accumulate = s.accumulate,
                   .gelu = s.gelu};
    if (s.bias) product.bias = filled(1, s.N, s.type);
    // Rows begin at multiples of 8 elements: GPUs fuse no other epilogue (gpu/matmul/epilogues.h).
    const auto beside = [&] {
      return filled(s.M, (s.N + 7) / 8 * 8, s.out_type).col_range(0, s.N);
    };
    if (s.gelu_input) product.gelu_input = beside();
    if (s.gelu_derivative) product.gelu_derivative_at = beside();
    if (s.bias_gradient) product.bias_gradient = filled(1, s.M, DType::f32);
    products_.push_back(product);
  }

  /// Small random numbers: a processor may be faster on zeros, and sums must stay finite.
  View filled(std::int64_t rows, std::int64_t cols, DType type) {
    constexpr std::int64_t kPattern = 8191;
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> uniform(-0.01f, 0.01f);
    std::vector<float> pattern(std::min(kPattern, rows * cols));
    for (float& value : pattern) value = uniform(engine);
    const auto count = static_cast<std::int64_t>(pattern.size());
    Tensor source(arena_, 1, count, DType::f32);
    backend_.device().copy_from_host(source.view().data, pattern.data(), source.bytes());
    Tensor& tensor = tensors_.emplace_back(arena_, rows, cols, type);
    const View all{tensor.view().data, type, 1, rows * cols, rows * cols};
    for (std::int64_t i = 0; i < all.cols; i += count) {
      const std::int64_t part = std::min(count, all.cols - i);
      backend_.run(ops::Cast{all.col_range(i, part), source.view().col_range(0, part)});
    }
    return tensor.view();
  }

  Backend& backend_;
  Arena arena_;
  std::vector<Tensor> tensors_;
  std::vector<Matmul> products_;
  std::size_t next_ = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

using Timer = std::function<double(const std::string& way)>;

/// Seconds of each way in each round, all ways in turn.
std::vector<std::vector<double>> match(const Timer& time, const std::vector<std::string>& ways,
                                       int rounds) {
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) seconds[i].push_back(time(ways[i]));
  return seconds;
}

/// How many times as fast as the default the way was; 0 if it was not clearly faster.
double clear_gain(const std::vector<double>& of_default, const std::vector<double>& of_way) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of_way.size(); ++i) ratios.push_back(of_default[i] / of_way[i]);
  const auto wins = std::ranges::count_if(ratios, [](double ratio) { return ratio > 1; });
  const double gain = median(ratios);
  const bool clear = gain >= kLeastGain &&
                     static_cast<double>(wins) >= kLeastShare * static_cast<double>(ratios.size());
  return clear ? gain : 0;
}

/// The default, and the ways that were fastest when each was timed once or twice.
std::vector<std::string> finalists(const Timer& time, const std::vector<std::string>& ways) {
  std::vector<std::pair<double, std::string>> timed;
  double best = time(ways.front());
  for (std::size_t i = 1; i < ways.size(); ++i) {
    double seconds = time(ways[i]);  // includes building the library's kernel
    if (seconds < 2 * kHopeless * best) seconds = std::min(seconds, time(ways[i]));
    best = std::min(best, seconds);
    timed.emplace_back(seconds, ways[i]);
  }
  std::ranges::sort(timed);
  std::vector<std::string> chosen{ways.front()};
  for (std::size_t i = 0; i < std::min(kFinalists, timed.size()); ++i)
    if (timed[i].first < kHopeless * best) chosen.push_back(timed[i].second);
  return chosen;
}

}  // namespace

TunedMatmul tune_matmul(Backend& backend, const MatmulShape& shape, const Timer& seconds) {
  const std::vector<std::string> ways = backend.matmul_ways(shape);
  AXONN_CHECK(!ways.empty(), "tune_matmul: the backend has no way to compute ", to_string(shape));
  TunedMatmul tuned{.shape = shape, .way = ways.front(), .default_way = ways.front()};
  const auto use = [&](const std::string& way) {
    AXONN_CHECK(backend.set_matmul_way(shape, way), backend.name(), " does not know its own way '",
                way, "' of ", to_string(shape));
  };
  std::optional<Operands> operands;
  if (!seconds) operands.emplace(backend, shape);
  const Timer time = [&](const std::string& way) {
    use(way);
    return seconds ? seconds(way) : operands->time_one();
  };
  time(ways.front());  // the first call builds the library's kernel
  const double once = time(ways.front());
  tuned.seconds = tuned.default_seconds = once;
  if (ways.size() == 1) return tuned;
  const int rounds = std::clamp(static_cast<int>(kMatchSeconds / once), kLeastRounds, kMostRounds);

  const std::vector<std::string> best = finalists(time, ways);
  const auto first = match(time, best, rounds);
  tuned.seconds = tuned.default_seconds = median(first.front());
  double gain = 0;
  for (std::size_t i = 1; i < best.size(); ++i)
    if (const double of_this = clear_gain(first.front(), first[i]); of_this > gain) {
      gain = of_this;
      tuned.way = best[i];
    }
  if (gain > 0) {
    const auto second = match(time, {ways.front(), tuned.way}, rounds);
    if (clear_gain(second[0], second[1]) > 0) {
      tuned.default_seconds = median(second[0]);
      tuned.seconds = median(second[1]);
    } else {
      tuned.way = ways.front();
    }
  }
  use(tuned.way);
  return tuned;
}

}  // namespace axonn
