#include "axonn/compute/ops/verifying_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/dtype.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Rows of a result that one sum covers. Fewer find smaller faults and cost more.
constexpr std::int64_t kRowsOfSum = 32;
/// Columns that a thread compares at a time.
constexpr std::int64_t kColumnsAtOnce = 128;

/// The half of the distance of 1 to the next number.
double rounding_of(DType type) {
  return type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-9;
}
/// The largest rounding of values near 0: of f16 half its smallest number, and of others more than
/// what is lost if these are taken for 0.
double smallest_of(DType type) { return type == DType::f16 ? 0x1p-25 : 0x1p-126; }

/// An upper bound of the errors of a sum of K products in f32, in units of 2⁻²⁴ and of the product
/// of the operands' norms, in any order. Independent errors have a deviation below sqrt(K) / 3 of
/// these; those of equal values, which add up, are at most K / 2.
double error_factor(std::int64_t K) {
  const double k = static_cast<double>(K);
  return std::min(k, std::max(16 * std::sqrt(k), k / 2)) + 4;
}

/// A sum over rows of a column of the result, and what it should be.
struct Fault {
  std::int64_t first_row = 0, rows = 0, col = 0;
  double found = 0, wanted = 0;
};

/// to[i] = from[i]; returns the sum of the squares.
template <typename T>
double convert(double* to, const T* from, std::int64_t count) {
  double squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<double>(get(from[i]));
    squares += to[i] * to[i];
  }
  return squares;
}

void add_scaled(double* to, const double* from, double factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

std::int64_t blocks_of(std::int64_t rows) { return (rows + kRowsOfSum - 1) / kRowsOfSum; }
std::int64_t rows_in(std::int64_t block, std::int64_t rows) {
  return std::min(kRowsOfSum, rows - block * kRowsOfSum);
}

/// Adds the values of each column of a part of a result, and their sizes.
template <typename Out>
void add_results(const View& part, double* sums, double* sizes) {
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const Out* const row = address<const Out>(part, r);
#pragma omp simd
    for (std::int64_t i = 0; i < part.cols; ++i) {
      const double value = get(row[i]);
      sums[i] += value;
      sizes[i] += std::fabs(value);
    }
  }
}

/// Of each kRowsOfSum rows of a: their sum, and the sum of their norms.
struct LeftSums {
  std::vector<double> sums;   ///< blocks x K
  std::vector<double> norms;  ///< blocks
};

/// The sums stay valid until the next call of this thread: memory that is kept is not cleared by
/// the system each time.
template <typename T>
const LeftSums& left_sums(const Matmul& args, int threads) {
  static thread_local LeftSums kept;
  LeftSums& left = kept;  // the same in the threads below
  const std::int64_t M = args.out.rows, K = shape_of(args).K, blocks = blocks_of(M);
  left.sums.assign(blocks * K, 0);
  left.norms.assign(blocks, 0);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    double* const sums = left.sums.data() + block * K;
    const std::int64_t first = block * kRowsOfSum, count = rows_in(block, M);
    if (!args.a_transposed) {
      std::vector<double> row(K);
      for (std::int64_t r = 0; r < count; ++r) {
        left.norms[block] += std::sqrt(convert(row.data(), address<const T>(args.a, first + r), K));
        add_scaled(sums, row.data(), 1, K);
      }
    } else {
      double of_rows[kRowsOfSum] = {};
      for (std::int64_t k = 0; k < K; ++k) {
        const T* const values = address<const T>(args.a, k) + first;
        for (std::int64_t r = 0; r < count; ++r) {
          const double value = get(values[r]);
          sums[k] += value;
          of_rows[r] += value * value;
        }
      }
      for (std::int64_t r = 0; r < count; ++r) left.norms[block] += std::sqrt(of_rows[r]);
    }
  }
  return left;
}

void sums_before(const Matmul& args, int threads, ResultSums& sums) {
  if (!args.accumulate) return;
  const std::int64_t N = args.out.cols, blocks = blocks_of(args.out.rows);
  sums.values.assign(blocks * N, 0);
  sums.sizes.assign(blocks * N, 0);
  with_type(args.out.dtype, [&]<typename Out>(Out) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t block = 0; block < blocks; ++block)
      add_results<Out>(args.out.row_range(block * kRowsOfSum, rows_in(block, args.out.rows)),
                       sums.values.data() + block * N, sums.sizes.data() + block * N);
  });
}

/// For the columns [begin, begin + count) of a result: what the operands give for their sums, and
/// the norms of these columns of b.
struct Panel {
  std::vector<double> wanted;  ///< blocks x kColumnsAtOnce
  double norms[kColumnsAtOnce] = {};
};

/// Valid until the next call of this thread.
template <typename T>
Panel& panel_of(const Matmul& args, const LeftSums& left, std::int64_t begin, std::int64_t count) {
  const std::int64_t K = shape_of(args).K, blocks = std::ssize(left.norms);
  static thread_local Panel panel;
  panel.wanted.assign(blocks * kColumnsAtOnce, 0);
  std::ranges::fill(panel.norms, 0);
  const auto for_blocks = [&](const auto& f) {
    for (std::int64_t block = 0; block < blocks; ++block)
      f(panel.wanted.data() + block * kColumnsAtOnce, left.sums.data() + block * K);
  };
  std::vector<double> values(args.b_transposed ? K : count);
  if (args.b_transposed) {
    for (std::int64_t i = 0; i < count; ++i) {
      panel.norms[i] = convert(values.data(), address<const T>(args.b, begin + i), K);
      for_blocks(
          [&](double* wanted, const double* sums) { wanted[i] = dot(sums, values.data(), K); });
    }
  } else {
    for (std::int64_t k = 0; k < K; ++k) {
      convert(values.data(), address<const T>(args.b, k) + begin, count);
      for (std::int64_t i = 0; i < count; ++i) panel.norms[i] += values[i] * values[i];
      for_blocks([&](double* wanted, const double* sums) {
        add_scaled(wanted, values.data(), sums[k], count);
      });
    }
  }
  for (double& norm : panel.norms) norm = std::sqrt(norm);
  return panel;
}

/// The first column, of any block, whose sum is not that of the operands.
template <typename T, typename Out>
std::optional<Fault> find_fault(const Matmul& args, const ResultSums& before, int threads) {
  const std::int64_t M = args.out.rows, N = args.out.cols, K = shape_of(args).K,
                     blocks = blocks_of(M), panels = (N + kColumnsAtOnce - 1) / kColumnsAtOnce;
  const LeftSums& left = left_sums<T>(args, threads);
  const double factor = error_factor(K) * 0x1p-24, rounding = rounding_of(args.out.dtype),
               smallest = smallest_of(args.out.dtype) + static_cast<double>(K) * 0x1p-126;
  std::vector<Fault> faults(panels);  // none has no rows
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t begin = panel * kColumnsAtOnce, count = std::min(kColumnsAtOnce, N - begin);
    Panel& of = panel_of<T>(args, left, begin, count);
    for (std::int64_t block = 0; block < blocks && faults[panel].rows == 0; ++block) {
      double* const wanted = of.wanted.data() + block * kColumnsAtOnce;
      double found[kColumnsAtOnce] = {}, sizes[kColumnsAtOnce] = {};
      add_results<Out>(
          args.out.row_range(block * kRowsOfSum, rows_in(block, M)).col_range(begin, count), found,
          sizes);
      const double rows = static_cast<double>(rows_in(block, M));
      for (std::int64_t i = 0; i < count; ++i) {
        double error = factor * left.norms[block] * of.norms[i];
        // Where the product is rounded before something is added, it is no larger than all of them.
        double rounded = sizes[i];
        if (args.bias.data) {
          const double bias = rows * get(address<const T>(args.bias)[begin + i]);
          wanted[i] += bias;
          rounded += std::fabs(bias);
        }
        if (args.accumulate) {
          const std::int64_t at = block * N + begin + i;
          wanted[i] += before.values[at];
          rounded += before.sizes[at];
          error += factor * before.sizes[at];
        }
        error += 2 * rounding * rounded;
        error += rows * smallest + 1e-12 * std::fabs(wanted[i]);
        if (!std::isfinite(found[i]) || !std::isfinite(wanted[i])) continue;
        if (std::fabs(found[i] - wanted[i]) > error) {
          faults[panel] = {block * kRowsOfSum, rows_in(block, M), begin + i, found[i], wanted[i]};
          break;
        }
      }
    }
  }
  const auto found = std::ranges::find_if(faults, [](const Fault& f) { return f.rows > 0; });
  return found == faults.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::string VerifyingBackend::fault_of(std::span<const Matmul> all) const {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Matmul& args = all[i];
    std::optional<Fault> fault;
    with_type(args.a.dtype, [&]<typename T>(T) {
      const auto find = args.out.dtype == args.a.dtype ? find_fault<T, T> : find_fault<T, float>;
      fault = find(args, before_[i], threads_);
    });
    if (fault)
      return concat(corruption(in_layer(concat("the product ", to_string(shape_of(args))))),
                    ": rows ", fault->first_row, " to ", fault->first_row + fault->rows - 1,
                    " of column ", fault->col, " have the sum ", fault->found,
                    ", and their operands give ", fault->wanted);
  }
  return {};
}

void VerifyingBackend::product(const Matmul& args) {
  verified({&args, 1}, [&] { ForwardingBackend::product(args); });
}

void VerifyingBackend::products(std::span<const Matmul> all) {
  verified(all, [&] { ForwardingBackend::products(all); });
}

void VerifyingBackend::verified(std::span<const Matmul> all, const std::function<void()>& run) {
  if (before_.size() < all.size()) before_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) sums_before(all[i], threads_, before_[i]);
  std::vector<View> added_to;
  for (const Matmul& args : all) {
    if (args.accumulate) added_to.push_back(args.out);
    if (args.bias_gradient.data) added_to.push_back(args.bias_gradient);
  }
  added_to_.save(added_to);
  run();
  const std::string fault = fault_of(all);
  if (fault.empty()) return;
  added_to_.restore(added_to);
  run();
  const std::string again = fault_of(all);
  AXONN_CHECK(again.empty(), again,
              ", also when it is computed again; faulty hardware is likely. Resume from the newest "
              "checkpoint (checkpoint.resume = \"auto\"), without that rank's node");
  remark(fault + "; it is computed again. If this happens there again, take that rank's node out");
}

}  // namespace axonn
