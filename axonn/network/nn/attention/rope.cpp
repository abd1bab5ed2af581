#include "axonn/network/nn/attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

double of_llama3(double frequency, const RopeScaling& s) {
  const double turns =  // rotations of the pair over the original positions
      static_cast<double>(s.original_positions) * frequency / (2 * std::numbers::pi);
  if (turns >= s.high_freq_factor) return frequency;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// The pairs between which YaRN's frequencies go from unscaled to divided by the factor.
struct Ramp {
  double first, last;

  Ramp(double head_dim, double theta, const RopeScaling& s) {
    const auto pair_that_turns = [&](double times) {
      return head_dim / 2 / std::log(theta) *
             std::log(static_cast<double>(s.original_positions) / (2 * std::numbers::pi * times));
    };
    first = pair_that_turns(s.beta_fast);
    last = pair_that_turns(s.beta_slow);
    if (s.truncate) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, head_dim - 1);
    constexpr double kLeastWidth = 0.001;  // transformers', of a ramp whose ends are equal
    if (first == last) last += kLeastWidth;
  }
  /// The share of a pair's frequency that is divided.
  double at(double pair) const { return std::clamp((pair - first) / (last - first), 0.0, 1.0); }
};

void divide(std::vector<double>& frequencies, const std::vector<double>& factors) {
  AXONN_CHECK(factors.size() == frequencies.size(), "rope: ", factors.size(), " factors for ",
              frequencies.size(), " frequencies");
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
}

}  // namespace

std::vector<double> rope_frequencies(std::int64_t D, double theta, const RopeScaling& scaling) {
  AXONN_CHECK(D > 0 && D % 2 == 0, "rope: ", D, " columns of a head rotate, want an even number");
  const auto width = static_cast<double>(D);
  std::vector<double> frequencies(D / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / width);
  if (scaling.kind == RopeScalingKind::llama3)
    for (double& f : frequencies) f = of_llama3(f, scaling);
  if (scaling.kind == RopeScalingKind::linear)
    for (double& f : frequencies) f /= scaling.factor;
  if (scaling.kind == RopeScalingKind::proportional)
    std::fill(frequencies.begin() + static_cast<std::int64_t>(scaling.share * width / 2),
              frequencies.end(), 0);
  if (scaling.kind == RopeScalingKind::longrope) divide(frequencies, scaling.short_factors);
  if (scaling.kind != RopeScalingKind::yarn) return frequencies;
  const Ramp ramp(width, theta, scaling);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = ramp.at(static_cast<double>(i));
    frequencies[i] *= divided / scaling.factor + 1 - divided;
  }
  return frequencies;
}

std::vector<double> long_rope_frequencies(std::int64_t D, double theta,
                                          const RopeScaling& scaling) {
  std::vector<double> frequencies = rope_frequencies(D, theta, {});
  divide(frequencies, scaling.long_factors);
  return frequencies;
}

double rope_magnitude(const RopeScaling& scaling) {
  const bool is_yarn = scaling.kind == RopeScalingKind::yarn;
  if (!is_yarn && scaling.kind != RopeScalingKind::longrope) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.factor <= 1) return 1;
  const double growth = std::log(scaling.factor);
  return is_yarn
             ? 0.1 * growth + 1
             : std::sqrt(1 + growth / std::log(static_cast<double>(scaling.original_positions)));
}

Rope::Kept Rope::needed(const Rows& rows) const {
  if (options_.longer.frequencies.empty()) return Kept::shorter;
  if (!rows.rotary.empty()) return Kept::both;
  return rows.whole() > options_.longer.than ? Kept::longer : Kept::shorter;
}

void Rope::prepare(const Context& ctx, const Rows& rows) {
  const Kept wanted = needed(rows);
  const std::int64_t positions = rows.most_positions(), count = rows_of(wanted, rows);
  if (!table_.empty() && kept_ == wanted && table_.rows() == count) return;
  kept_ = wanted;
  table_ = table(ctx, count, positions, false);
  if (queries_grow()) query_table_ = table(ctx, count, positions, true);
}

Tensor Rope::table(const Context& ctx, std::int64_t count, std::int64_t positions,
                   bool queries) const {
  const auto half = static_cast<std::int64_t>(frequencies_.size());
  Tensor made = ctx.empty(count, 2 * half, DType::f32);
  if (!ctx.device().keeps_values()) return made;
  std::vector<float> host(count * 2 * half);
#pragma omp parallel for
  for (std::int64_t row = 0; row < count; ++row) {
    const bool is_long = kept_ == Kept::longer || row >= positions;
    const std::vector<double>& frequencies = is_long ? options_.longer.frequencies : frequencies_;
    const std::int64_t position = row % positions;
    double magnitude = options_.magnitude;
    if (queries)
      magnitude *= 1 + options_.queries.growth *
                           std::log1p(static_cast<double>((position + options_.queries.offset) /
                                                          options_.queries.positions));
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[i];
      host[row * 2 * half + i] = static_cast<float>(magnitude * std::cos(angle));
      host[row * 2 * half + half + i] = static_cast<float>(magnitude * std::sin(angle));
    }
  }
  ctx.device().copy_from_host(made.view().data, host.data(), made.bytes());
  return made;
}

void Rope::turn(const Context& ctx, const LocalHeads& at, const View& out, const View& inp,
                bool inverse, const View& positions) const {
  const auto run = [&](const View& to, const View& from, const Tensor& angles) {
    ctx.backend.run(ops::RotaryEmbedding{.out = to,
                                         .inp = from,
                                         .table = angles.view(),
                                         .inverse = inverse,
                                         .positions = positions,
                                         .head_dim = at.dim,
                                         .neighbours = options_.neighbours});
  };
  if (!queries_grow()) return run(at.qk(out), at.qk(inp), table_);
  run(at.q(out), at.q(inp), query_table_);
  if (at.room > 0) run(at.k(out), at.k(inp), table_);
}

void Rope::rotate(const Context& ctx, const Chunk& rows, const View& heads, std::int64_t head_dim,
                  Of of) const {
  const bool grows = of == Of::queries && queries_grow();
  ctx.backend.run(ops::RotaryEmbedding{.out = heads,
                                       .inp = heads,
                                       .table = (grows ? query_table_ : table_).view(),
                                       .positions = of_rows_here(ctx, rows, numbers(rows.rows)),
                                       .head_dim = head_dim,
                                       .neighbours = options_.neighbours});
}

Var Rope::operator()(const Context& context, Var qkv, const Heads& heads) const {
  return each_later(context, std::move(qkv), [this, heads](const Context& ctx, Chunk in) {
    const LocalHeads at(ctx, heads, in.placement.cols);
    AXONN_CHECK(in.value.cols() == at.width() && kept_ == needed(in.rows) &&
                    rows_of(kept_, in.rows) == table_.rows() && heads.head_dim >= table_.cols(),
                "rope: qkv ", in.value.raw_view(), " of ", in.rows.most_positions(),
                " positions, wanted ", at.width(), " columns, and prepare() has made the table ",
                table_.raw_view());
    const View positions = of_rows_here(ctx, in, numbers(in.rows));
    const auto turned = [this, ctx, at, positions](Tensor value) {
      const View inp = value.view();
      const Tensor before = value.unique() ? Tensor() : value;
      if (!before.empty()) {
        value = ctx.like(value);
        if (at.room > 0) ctx.backend.run(ops::Cast{at.v(value.view()), at.v(inp)});
      }
      turn(ctx, at, value.view(), inp, false, positions);
      return value;
    };
    const auto backward = [this, ctx, at, positions, kept = numbers(in.rows),
                           to = in.gradient](Tensor d) {
      const View d_out = d.view();
      if (!d.unique()) {
        d = ctx.like(d);
        if (at.room > 0) ctx.backend.run(ops::Cast{at.v(d.view()), at.v(d_out)});
      }
      turn(ctx, at, d.view(), d_out, true, positions);
      to->add(ctx, std::move(d));
    };
    Chunk out = make_chunk(ctx, in, turned(std::move(in.value)), in.placement);
    const std::string_view block = ctx.scheduling().scope.label;
    if (in.again.made_in(block))
      out.again = Saved(
          [turned, kept = numbers(in.rows), of = std::move(in.again)] { return turned(of.take()); },
          block);
    return with_backward(ctx, out, backward);
  });
}

}  // namespace axonn
