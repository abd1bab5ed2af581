#include "axonn/run/optim/gradient_norms.h"

#include <cmath>
#include <map>

namespace axonn {

NamedNorms gradient_norms(const Context& ctx, const OptimizerState& optimizer) {
  NamedNorms norms;
  std::map<const ParameterSpec*, std::int64_t> index;
  for (const ParameterGroup* group : optimizer.groups())
    for (const auto& parameter : group->parameters()) {
      index[&parameter->spec()] = std::ssize(norms);
      norms.emplace_back(parameter->spec().name, 0);
    }
  Tensor sums = ctx.zeros(1, std::ssize(norms), DType::f64);
  for (const ParameterGroup* group : optimizer.groups())
    for (const auto& [spec, slice] : group->piece_slices())
      if (slice.owned)
        ctx.backend.run(ops::SquaredSum{sums.view().col_range(index.at(spec), 1),
                                        group->gradient().col_range(slice.offset, slice.count())});
  sums.set_pending(ctx.grid.world().all_reduce(buffer_of(sums.raw_view()), "gradient norms"));
  std::vector<double> host(norms.size());
  ctx.device().copy_to_host(host.data(), sums.view().data, sums.bytes());
  for (std::size_t i = 0; i < norms.size(); ++i) norms[i].second = std::sqrt(host[i]);
  return norms;
}

}  // namespace axonn
