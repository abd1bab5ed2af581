#include "axonn/plan/machine/probe_tokens.h"

#include <vector>

namespace axonn {

Tokens any_tokens(const Context& ctx, const Config& config) {
  const TrainingConfig& training = config.training;
  constexpr std::int64_t kStride = 7919;  // a prime, so that neighbours differ in the vocab
  std::vector<std::int32_t> ids(training.micro_batch * training.seq_len);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * kStride % config.model.vocab);
  return make_tokens(ctx, ids, ids, {training.micro_batch, training.seq_len});
}

}  // namespace axonn
