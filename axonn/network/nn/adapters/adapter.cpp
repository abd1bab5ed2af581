#include "axonn/network/nn/adapters/adapter.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/nn/adapters/layer_adapters.h"

namespace axonn {

namespace {

constexpr std::string_view kAdapters = " (adapters";

/// The end of a group's name.
std::string of_choice(std::int64_t choice) { return concat(kAdapters, ' ', choice, ')'); }

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
                   .init_std = options.a_std > 0 ? options.a_std : 1 / std::sqrt(3 * inputs),
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
  scale(ctx, out);
  return out;
}

void Adapter::scale(const Context& ctx, const Tensor& inner) const {
  ctx.backend.run(ops::Dropout{.out = inner.view(), .inp = inner.view(), .scale = scale_});
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
  const Tensor seen = dropped(ctx, inp, rows);
  if (dropout_ == 0 || !d_inp.data)
    return add_gradients(ctx, {.d_inp = d_inp}, d_out.view(), seen.view());
  const Tensor d_seen = ctx.like(inp);
  add_gradients(ctx, {.d_inp = d_seen.view(), .accumulate = false}, d_out.view(), seen.view());
  const View d_read = a_->columns_read(d_seen.view()), sum = a_->columns_read(d_inp);
  drop(ctx, d_read, d_read, rows);
  ctx.backend.run(ops::Add{sum, sum, d_read});
}

void Adapter::add_gradients(const Context& ctx, const Gradients& to, const View& d_out,
                            const View& inp) const {
  if (a_->local_cols() == 0) return;
  const View d_part = part_of(d_out);
  const auto [d_b, add_to_b] = b_->gradient_of_all();
  ctx.backend.matmul({.out = d_b,
                      .a = d_part,
                      .b = inner(ctx, inp).view(),
                      .a_transposed = true,
                      .accumulate = add_to_b});
  Tensor d_inner = ctx.empty(d_part.rows, rank_, ctx.dtype);
  ctx.backend.matmul({.out = d_inner.view(), .a = d_part, .b = b_->weight()});
  scale(ctx, d_inner);
  const auto [d_a, add_to_a] = a_->gradient_of_all();
  ctx.backend.matmul({.out = d_a,
                      .a = d_inner.view(),
                      .b = a_->columns_read(inp),
                      .a_transposed = true,
                      .accumulate = add_to_a});
  if (!to.d_inp.data) return;
  ctx.backend.matmul({.out = a_->columns_read(to.d_inp),
                      .a = d_inner.view(),
                      .b = a_->weight(),
                      .accumulate = to.accumulate});
}

/// scale · B[ids] (R, r); ids that another rank has give 0.
Tensor Adapter::rows_of_b(const Context& ctx, const View& ids, std::int64_t first) const {
  Tensor out = ctx.empty(ids.cols, rank_, ctx.dtype);
  ctx.backend.run(ops::Embedding{
      .out = out.view(), .ids = ids, .table = b_->weight(), .first = first, .learned = {}});
  scale(ctx, out);
  return out;
}

void Adapter::add_rows(const Context& ctx, const View& out, const View& ids,
                       std::int64_t first) const {
  ctx.backend.matmul(
      {.out = out, .a = rows_of_b(ctx, ids, first).view(), .b = a_->weight(), .accumulate = true});
}

void Adapter::add_row_gradients(const Context& ctx, const View& d_out, const View& ids,
                                std::int64_t first) const {
  const auto [d_a, add_to_a] = a_->gradient_of_all();
  ctx.backend.matmul({.out = d_a,
                      .a = rows_of_b(ctx, ids, first).view(),
                      .b = d_out,
                      .a_transposed = true,
                      .accumulate = add_to_a});
  const Tensor d_inner = ctx.empty(d_out.rows, rank_, ctx.dtype);
  ctx.backend.matmul({.out = d_inner.view(), .a = d_out, .b = a_->weight(), .b_transposed = true});
  scale(ctx, d_inner);
  ctx.backend.run(ops::EmbeddingBackward{b_->gradient(ctx), d_inner.view(), ids, first});
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

Adapters::Adapters(ParameterGroup& block, LoraConfig config)
    : grid_(block.grid()),
      config_(std::move(config)),
      block_(block.name()),
      whole_(block_ + " (whole)", grid_),
      groups_(std::max<std::size_t>(config_.choices.size(), 1)) {
  AXONN_CHECK(config_.rank >= 0, block_, ": adapters of rank ", config_.rank, ", want at least 0");
  if (config_.rank > 0 && !config_.modules.empty())
    block.divert(whole_,
                 [this](const ParameterSpec& spec) { return trains_whole(config_, spec.name); });
}

std::vector<ParameterGroup*> Adapters::groups() {
  std::vector<ParameterGroup*> all;
  if (!whole_.parameters().empty()) all.push_back(&whole_);
  for (const auto& group : groups_)
    if (group) all.push_back(group.get());
  return all;
}

bool Adapters::has(const ParameterGroup* group) const {
  return std::ranges::find(groups_, group, &std::unique_ptr<ParameterGroup>::get) != groups_.end();
}

bool Adapters::adapts() const {
  return std::ranges::any_of(groups_, [](const auto& group) { return group != nullptr; });
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
          block_ + (choice ? of_choice(*choice) : concat(kAdapters, ')')), grid_);
    all.emplace_back(*groups_[i], module, layer.layout,
                     Adapter::Options{.rank = own->rank,
                                      .alpha = own->alpha,
                                      .dropout = configs[i].dropout,
                                      .magnitude = configs[i].dora,
                                      .a_std = layer.a_std,
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

bool is_of_adapters(const ParameterGroup& group) {
  return group.name().find(kAdapters) != std::string::npos;
}

bool is_of_choice(const ParameterGroup& group, std::int64_t choice) {
  return group.name().ends_with(of_choice(choice));
}

}  // namespace axonn
