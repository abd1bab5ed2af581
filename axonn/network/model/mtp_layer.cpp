#include "axonn/network/model/mtp_layer.h"

#include <utility>

#include "axonn/network/nn/gathered.h"

namespace axonn {

MtpLayer::MtpLayer(const ModelConfig& config, const Grid& grid, const std::string& name,
                   const Norm::Options& norm, std::unique_ptr<DecoderBlock> block)
    : parameters_(std::make_unique<ParameterGroup>(name + ".mtp", grid)),
      width_(config.hidden),
      embedding_norm_(*parameters_, name + ".enorm", norm),
      hidden_norm_(*parameters_, name + ".hnorm", norm),
      project_(*parameters_, name + ".eh_proj",
               {.in = 2 * config.hidden,
                .out = config.hidden,
                .orientation = Orientation::transposed,
                .bias = false,
                .init_std = config.init_std}),
      end_(*parameters_, name + ".shared_head.norm", norm),
      block_(std::move(block)) {}

std::vector<ParameterGroup*> MtpLayer::groups() const {
  std::vector<ParameterGroup*> all = block_->groups();
  all.insert(all.begin(), parameters_.get());
  return all;
}

Var MtpLayer::operator()(const Context& ctx, const Var& e, const Var& h,
                         std::int64_t number) const {
  const auto run = [this, e](const Context& inner, const Var& in) {
    const auto whole = [&](const Var& x) { return gathered(inner, x, Axis::y, {width_}); };
    const Var both =
        concat_columns(inner, {whole(embedding_norm_(inner, e)), whole(hidden_norm_(inner, in))});
    const Var x = project_(inner, columns_over(inner, both, Axis::x, 0, 2 * width_));
    return end_(inner, (*block_)(inner, x));
  };
  return run_block(ctx, groups(), h, run, number);
}

}  // namespace axonn
