#include "axonn/network/nn/adapter.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/nn/layer_adapters.h"

namespace axonn {

namespace {

/// The end of a group's name.
std::string of_choice(std::int64_t choice) { return concat(" (adapters ", choice, ')'); }

}  // namespace

Adapter::Adapter(ParameterGroup& group, const std::string& module, const Layout& weight,
                 const Options& options)
    : rank_(options.rank),
      first_row_(options.first_row),
      choice_(options.choice),
      scale_(static_cast<float>(options.alpha / static_cast<double>(options.rank))),
      dropout_(static_cast<float>(options.dropout)),
      key_(hash_text(module)),
      in_axis_(weight.col_axis.value()) {
  const double inputs = static_cast<double>(weight.cols);
  a_ = &group.add({.name = module + ".lora_A.weight",
                   .layout = {.rows = rank_,
                              .cols = weight.cols,
                              .col_axis = weight.col_axis,
                              .col_unit = weight.col_unit,
                              .partial = weight.row_axis.value()},
                   // PEFT's initial values are uniform on ±1 / sqrt(in); this is their deviation.
                   .init_std = 1 / std::sqrt(3 * inputs),
                   .decays = true});
  Layout out = weight;
  out.cols = rank_;
  out.col_axis.reset();
  out.col_unit = 0;
  out.partial = in_axis_;
  b_ = &group.add({.name = module + ".lora_B.weight", .layout = out, .decays = true});
  if (!options.magnitude) return;
  out.cols = 1;
  magnitude_ = &group.add({.name = module + ".lora_magnitude_vector", .layout = out});
}

/// The mask uses global numbers of rows and columns, so it does not depend on the grid.
void Adapter::drop(const Context& ctx, const View& out, const View& inp, const Rows& rows) const {
  rows.for_each_run([&](std::int64_t row, std::int64_t count, std::int64_t number) {
    ctx.backend.run(ops::Dropout{.out = out.row_range(row, count),
                                 .inp = inp.row_range(row, count),
                                 .probability = dropout_,
                                 .key = key_ + ctx.seed,
                                 .first_row = number,
                                 .first_col = ctx.grid.coord(in_axis_) * a_->input_cols()});
  });
}

/// The input after dropout; without dropout, or in evaluation, the input itself.
Tensor Adapter::dropped(const Context& ctx, const Tensor& inp, const Rows& rows) const {
  if (dropout_ == 0 || !ctx.training()) return inp;
  Tensor out = ctx.empty(inp.rows(), inp.cols(), inp.dtype());
  drop(ctx, out.view(), inp.view(), rows);
  return out;
}

/// scale · inp · Aᵀ (R, r), partial over the input axis.
Tensor Adapter::inner(const Context& ctx, const View& inp) const {
  Tensor out = ctx.empty(inp.rows, rank_, ctx.dtype);
  ctx.backend.matmul(
      {.out = out.view(), .a = a_->columns_read(inp), .b = a_->weight(), .b_transposed = true});
  ctx.backend.run(ops::Dropout{.out = out.view(), .inp = out.view(), .scale = scale_});
  return out;
}

void Adapter::add(const Context& ctx, const View& out, const View& inp) const {
  ctx.backend.matmul({.out = part_of(out),
                      .a = inner(ctx, inp).view(),
                      .b = b_->weight(),
                      .b_transposed = true,
                      .accumulate = true});
}

void Adapter::forward(const Context& ctx, const View& out, const Tensor& inp,
                      const Rows& rows) const {
  if (a_->local_cols() == 0) return;  // the input is padding
  if (!choice_) return add(ctx, out, dropped(ctx, inp, rows).view());
  const auto* const all = ctx.find<AdapterRows>();
  if (!all) return;
  for (const AdapterRows::Run& run : all->runs)
    if (run.choice == *choice_)
      add(ctx, out.row_range(run.first, run.count), inp.view().row_range(run.first, run.count));
}

void Adapter::backward(const Context& ctx, const View& d_inp, const Tensor& d_out,
                       const Tensor& inp, const Rows& rows) const {
  AXONN_CHECK(!choice_, "Adapter: adapters of which sequences use one are not trained");
  if (a_->local_cols() == 0) return;
  const Tensor seen = dropped(ctx, inp, rows);
  const View d_part = part_of(d_out.view());
  const auto [d_b, add_to_b] = b_->gradient_of_all();
  ctx.backend.matmul({.out = d_b,
                      .a = d_part,
                      .b = inner(ctx, seen.view()).view(),
                      .a_transposed = true,
                      .accumulate = add_to_b});
  Tensor d_inner = ctx.empty(d_part.rows, rank_, ctx.dtype);
  ctx.backend.matmul({.out = d_inner.view(), .a = d_part, .b = b_->weight()});
  ctx.backend.run(ops::Dropout{.out = d_inner.view(), .inp = d_inner.view(), .scale = scale_});
  const auto [d_a, add_to_a] = a_->gradient_of_all();
  ctx.backend.matmul({.out = d_a,
                      .a = d_inner.view(),
                      .b = a_->columns_read(seen.view()),
                      .a_transposed = true,
                      .accumulate = add_to_a});
  if (!d_inp.data) return;
  const View d_read = a_->columns_read(d_inp);
  if (dropout_ == 0) {
    ctx.backend.matmul({.out = d_read, .a = d_inner.view(), .b = a_->weight(), .accumulate = true});
    return;
  }
  const Tensor d_seen = ctx.empty(d_read.rows, d_read.cols, ctx.dtype);
  ctx.backend.matmul({.out = d_seen.view(), .a = d_inner.view(), .b = a_->weight()});
  drop(ctx, d_seen.view(), d_seen.view(), rows);
  ctx.backend.run(ops::Add{d_read, d_read, d_seen.view()});
}

/// With s = scale: |W|² + s B · (2 W Aᵀ + s B A Aᵀ), row by row, so that no product has W's size.
void Adapter::squared_norms(const Context& ctx, const View& norms, const View& weight) const {
  if (a_->local_cols() == 0) return;  // the input is padding
  ctx.backend.run(ops::RowDots{norms, weight, weight});
  const Tensor change = ctx.empty(weight.rows, rank_, DType::f32),
               b = ctx.empty(weight.rows, rank_, DType::f32),
               of_a = ctx.empty(rank_, rank_, ctx.dtype),
               dots = ctx.empty(weight.rows, 1, DType::f32);
  ctx.backend.matmul(
      {.out = of_a.view(), .a = a_->weight(), .b = a_->weight(), .b_transposed = true});
  ctx.backend.matmul({.out = change.view(), .a = weight, .b = a_->weight(), .b_transposed = true});
  ctx.backend.run(ops::Scale{change.view(), change.view(), 2 / scale_});
  ctx.backend.matmul(
      {.out = change.view(), .a = b_->weight(), .b = of_a.view(), .accumulate = true});
  ctx.backend.run(ops::Cast{b.view(), b_->weight()});
  ctx.backend.run(ops::RowDots{dots.view(), b.view(), change.view()});
  ctx.backend.run(ops::Scale{dots.view(), dots.view(), scale_ * scale_});
  ctx.backend.run(ops::Add{norms, norms, dots.view()});
}

Adapters::Adapters(const std::string& block, const Grid& grid, LoraConfig config)
    : grid_(grid),
      config_(std::move(config)),
      block_(block),
      groups_(std::max<std::size_t>(config_.choices.size(), 1)) {
  AXONN_CHECK(config_.rank >= 0, block, ": adapters of rank ", config_.rank, ", want at least 0");
}

std::vector<ParameterGroup*> Adapters::groups() const {
  std::vector<ParameterGroup*> all;
  for (const auto& group : groups_)
    if (group) all.push_back(group.get());
  return all;
}

bool Adapters::has(const ParameterGroup* group) const {
  return std::ranges::find(groups_, group, &std::unique_ptr<ParameterGroup>::get) != groups_.end();
}

void Adapters::add_to(std::vector<Adapter>& all, const Layer& layer) {
  const std::string& module = layer.module;
  layers_.push_back(module);
  const std::span<const LoraConfig> configs =
      config_.choices.empty() ? std::span(&config_, 1) : std::span(config_.choices);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const auto own = layer_adapter(configs[i], module);
    if (!own) continue;
    std::optional<std::int64_t> choice;
    if (!config_.choices.empty()) choice = static_cast<std::int64_t>(i);
    if (!groups_[i])
      groups_[i] = std::make_unique<ParameterGroup>(
          block_ + (choice ? of_choice(*choice) : " (adapters)"), grid_);
    all.emplace_back(*groups_[i], module, layer.layout,
                     Adapter::Options{.rank = own->rank,
                                      .alpha = own->alpha,
                                      .dropout = configs[i].dropout,
                                      .magnitude = configs[i].dora,
                                      .first_row = layer.first_row,
                                      .choice = choice});
    if (configs[i].dora) magnitudes_.push_back({all.back(), &layer.weight});
  }
}

void Adapters::initialise_magnitudes(const Context& ctx) {
  for (const auto& [adapter, weight] : magnitudes_) {
    const Parameter& m = *adapter.magnitude();
    Tensor squares = ctx.zeros(m.local_rows(), 1, DType::f32);
    adapter.squared_norms(ctx, squares.view(), adapter.rows_of(weight->weight()));
    sum_over(ctx, squares, *weight->spec().layout.col_axis, Cut::same, {});
    std::vector<float> norms(m.local_rows());
    ctx.device().copy_to_host(norms.data(), squares.view().data, std::ssize(norms) * 4);
    for (float& norm : norms) norm = std::sqrt(norm);
    groups_.front()->set_block(ctx, m, norms);
  }
  if (!magnitudes_.empty()) groups_.front()->publish_values(ctx);
}

bool is_of_choice(const ParameterGroup& group, std::int64_t choice) {
  return group.name().ends_with(of_choice(choice));
}

}  // namespace axonn
