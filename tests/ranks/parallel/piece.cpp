#include "tests/ranks/parallel/piece.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/var.h"

#include "tests/support/packed_rows.h"

namespace axonn::testing_support {

namespace {

constexpr std::uint64_t kSeed = 7;
constexpr const char* kWeights = "weights";  // name of the weights that make a loss of a result

/// Puts together the ranks' blocks, and checks that replicated elements are the same.
class Collector {
 public:
  /// Sets rows [row, ...), columns [col, ...) of the matrix (rows, cols) of that name to block.
  void put(const std::string& name, std::pair<std::int64_t, std::int64_t> size,
           std::pair<std::int64_t, std::int64_t> at, const View& block) {
    const std::lock_guard lock(mutex_);
    Gathered& whole = result_[name];
    if (whole.values.empty())
      whole = {size.first, size.second,
               std::vector<float>(size.first * size.second, std::nanf(""))};
    for (std::int64_t r = 0; r < block.rows; ++r) {
      for (std::int64_t c = 0; c < block.cols; ++c) {
        float& to = whole.values.at((at.first + r) * whole.cols + at.second + c);
        const float value = float_at(block.data, block.dtype, r * block.stride + c);
        AXONN_CHECK(std::isnan(to) || to == value, name, " (", at.first + r, ',', at.second + c,
                    ") is ", to, " on one rank and ", value, " on another");
        to = value;
      }
    }
  }
  const PieceResult& result() const { return result_; }

 private:
  std::mutex mutex_;
  PieceResult result_;
};

/// One rank of a run.
class PieceRank {
 public:
  PieceRank(const PieceRun& run, Communicator& world, Collector& collector)
      : run_(run), collector_(collector), grid_(world, run.grid), group_("piece", grid_) {
    each_ = run.sequences / (run.grid.z * run.grid.data);
    first_row_ =
        (grid_.coord(Axis::data) * run.grid.z + grid_.coord(Axis::z)) * each_ * run.positions;
  }

  void go() {
    const Piece piece = run_.make(group_);
    Context ctx(*backend_, arena_, grid_, run_.dtype);
    Scheduling& scheduling = ctx.own_scheduling();
    scheduling.run.chunks = run_.chunks;
    scheduling.run.sequence_parallel = run_.sequence_parallel;
    group_.allocate(ctx);
    group_.initialise(ctx, 1);
    shift(ctx);
    group_.begin_step(ctx);
    Tape tape;
    ctx.tape = &tape;
    const Tokens tokens = tokens_of(ctx);
    PieceInput input{input_of(ctx, tokens.rows), tokens, ctx.zeros(1, 1, DType::f64)};
    Var out;
    if (run_.loss_follows) {
      GatheredWeights weights(ctx, group_, ReadIn::held);
      out = piece(weights.context(), input);
      weights.release();
    } else {
      out = run_block(ctx, group_, input.x,
                      [&](const Context& inside, const Var&) { return piece(inside, input); });
    }
    keep_out(ctx, out);
    tape.backward();
    keep_gradients(ctx, input);
    keep_total(input.total);
  }

 private:
  std::int64_t all_rows() const { return run_.sequences * run_.positions; }

  void shift(const Context& ctx) {
    float* master = group_.master().as<float>();
    for (const auto& [spec, slice] : group_.piece_slices()) {
      const Random noise(3, spec->name);
      const double far = spec->name == run_.shifted ? run_.shift : 0;
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        const std::int64_t e = slice.begin + i, row = slice.row + e / slice.cols,
                           index = row * spec->layout.cols + slice.col + e % slice.cols;
        master[slice.offset + i] +=
            static_cast<float>(0.3 * noise.normal(index) + far * direction(spec->name, index));
      }
    }
    group_.publish_values(ctx);
  }

  /// The part of a global matrix that a rank holds. part_of: of a chunk that begins `first` rows
  /// after the rank's first.
  struct Part {
    std::int64_t row, rows, col, cols, all_cols;
  };
  Part part_of(const Placement& placement, std::int64_t first, std::int64_t rows,
               std::int64_t cols) const {
    std::int64_t row = first_row_ + first, ways = 1, at = 0;
    for (Axis axis : {Axis::x, Axis::y}) {
      if (placement.rows.has(axis)) row += grid_.coord(axis) * rows;
      if (!placement.cols.has(axis)) continue;
      ways *= grid_.extent(axis);
      at = at * grid_.extent(axis) + grid_.coord(axis);
    }
    return {row, rows, at * cols, cols, ways * cols};
  }

  /// A part of a global matrix of random numbers.
  static Tensor random(const Context& ctx, const char* name, const Part& part) {
    Tensor tensor = ctx.empty(part.rows, part.cols, ctx.dtype);
    const Random numbers(kSeed, name);
    for (std::int64_t r = 0; r < part.rows; ++r) {
      for (std::int64_t c = 0; c < part.cols; ++c) {
        const auto x =
            static_cast<float>(numbers.normal((part.row + r) * part.all_cols + part.col + c));
        if (ctx.dtype == DType::f32)
          put(tensor.view().row<float>(r)[c], x);
        else if (ctx.dtype == DType::bf16)
          put(tensor.view().row<bf16>(r)[c], x);
        else
          put(tensor.view().row<f16>(r)[c], x);
      }
    }
    return tensor;
  }

  /// Random tokens; every fifth target is negative, so it has no loss.
  Tokens tokens_of(const Context& ctx) {
    const Rows rows{each_, run_.positions};
    std::vector<std::int32_t> ids, targets;
    const Random numbers(kSeed, "tokens");
    for (std::int64_t row = first_row_; row < first_row_ + rows.count(); ++row) {
      const auto token = [&](std::int64_t i) {
        return static_cast<std::int32_t>(numbers.below(i, run_.vocab));
      };
      ids.push_back(token(2 * row));
      targets.push_back(row % 5 == 0 ? -1 : token(2 * row + 1));
    }
    const PackedRows packed(first_row_ / run_.positions, rows);
    return make_tokens(ctx, ids, targets, rows,
                       run_.packed ? packed.row_positions() : RowPositions{});
  }

  Var input_of(const Context& ctx, const Rows& all) {
    Var x;
    for (int c = 0; c < run_.chunks; ++c) {
      const std::int64_t begin = c * each_ / run_.chunks, end = (c + 1) * each_ / run_.chunks;
      const Rows rows = all.part(begin, end);
      Placement placement{{Axis::z, Axis::data}, Axis::y};
      std::int64_t here = rows.count();
      if (row_cut(ctx, here, Axis::x) == Cut::rows) {
        placement.rows = placement.rows | Axis::x;
        here /= grid_.extent(Axis::x);
      }
      const Part part =
          part_of(placement, begin * run_.positions, here, run_.width / grid_.extent(Axis::y));
      x.push_back({random(ctx, "x", part), placement, rows, std::make_shared<Gradient>()});
    }
    return x;
  }

  /// Collects out and adds its gradient: the fixed weights of the loss.
  void keep_out(const Context& ctx, const Var& out) {
    std::int64_t first = 0;
    for (const Chunk& chunk : out) {
      const Part part = part_of(chunk.placement, first, chunk.value.rows(), chunk.value.cols());
      keep_part("out", chunk.value.view(), part);
      chunk.gradient->add(ctx, random(ctx, kWeights, part));
      first += chunk.rows.count();
    }
  }

  void keep_part(const std::string& name, const View& view, const Part& part) {
    collector_.put(name, {all_rows(), part.all_cols}, {part.row, part.col}, view);
  }

  void keep_gradients(const Context& ctx, const PieceInput& input) {
    std::int64_t first = 0;
    for (const Chunk& chunk : input.x) {
      const Tensor d_inp = chunk.gradient->take_if_any();
      if (!d_inp.empty())
        keep_part("d_inp", d_inp.view(),
                  part_of(chunk.placement, first, d_inp.rows(), d_inp.cols()));
      first += chunk.rows.count();
    }
    finish_gradients(ctx, std::array{&group_});
    const float* gradient = group_.gradient().as<float>();
    for (const auto& [spec, slice] : group_.piece_slices()) {
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        const std::int64_t e = slice.begin + i;
        const View one{const_cast<float*>(gradient + slice.offset + i), DType::f32, 1, 1, 1};
        collector_.put(spec->name, {spec->layout.rows, spec->layout.cols},
                       {slice.row + e / slice.cols, slice.col + e % slice.cols}, one);
      }
    }
  }

  /// Collects a row for each rank; run_piece sums them.
  void keep_total(const Tensor& total) {
    auto sum = static_cast<float>(*total.view().as<double>());
    collector_.put("total", {grid_.world().size(), 1}, {grid_.world().rank(), 0},
                   {&sum, DType::f32, 1, 1, 1});
  }

  const PieceRun& run_;
  Collector& collector_;
  std::unique_ptr<Backend> backend_ = run_.make_backend ? run_.make_backend() : make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Grid grid_;
  ParameterGroup group_;
  std::int64_t each_ = 0, first_row_ = 0;
};

}  // namespace

PieceResult run_piece(const PieceRun& run) {
  Collector collector;
  run_ranks(run.grid.ranks(), [&](Communicator& world) { PieceRank(run, world, collector).go(); });
  PieceResult result = collector.result();
  Gathered& total = result["total"];
  float sum = 0;
  for (float part : total.values) sum += part;
  total = {1, 1, {sum}};
  return result;
}

double direction(const std::string& parameter, std::int64_t index) {
  return Random(4, parameter).normal(index);
}

double loss_of(const PieceResult& result) {
  if (!result.contains("out")) return result.at("total").values.front();
  const Random weights(kSeed, kWeights);
  const auto& out = result.at("out").values;
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * weights.normal(i);
  return sum;
}

std::string difference(const PieceResult& want, const PieceResult& got, std::int64_t terms) {
  if (want.size() != got.size()) return concat(want.size(), " results and ", got.size());
  for (const auto& [name, a] : want) {
    const Gathered& b = got.at(name);
    if (a.rows != b.rows || a.cols != b.cols) return name + " has another size";
    float largest = 0;
    for (float value : a.values) largest = std::max(largest, std::abs(value));
    const float tolerance =
        static_cast<float>(terms) * std::numeric_limits<float>::epsilon() * largest;
    for (std::size_t i = 0; i < a.values.size(); ++i)
      if (!(std::abs(a.values[i] - b.values[i]) <= tolerance))
        return concat(name, " (", static_cast<std::int64_t>(i) / a.cols, ',',
                      static_cast<std::int64_t>(i) % a.cols, "): ", a.values[i], " and ",
                      b.values[i], ", tolerance ", tolerance);
  }
  return {};
}

}  // namespace axonn::testing_support
