#include "axonn/compute/ops/repeating_backend.h"

#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

void RepeatingBackend::product(const Matmul& args) {
  overwrites_ = !args.accumulate && !args.bias_gradient.data;
  ForwardingBackend::product(args);
}

void RepeatingBackend::on_host(const HostOperation& operation) {
  once_ = true;
  ForwardingBackend::on_host(operation);
}

void RepeatingBackend::around(const OperationCall& call, const std::function<void()>& run) {
  const bool overwrites =
      std::exchange(overwrites_, false) || call.kind == OperationKind::attention;
  if (std::exchange(once_, false)) return run();
  std::vector<View> written;
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if (call.writes(i) && call.operands[i].data && call.operands[i].count() > 0)
      written.push_back(call.operands[i]);
  before_.clear();
  if (!overwrites) before_.save(written);
  run();
  first_.save(written);
  if (!overwrites) before_.restore(written);
  run();
  if (!first_.are_those_of(written)) decide(call, written, run);
}

void RepeatingBackend::decide(const OperationCall& call, std::span<const View> written,
                              const std::function<void()>& run) {
  second_.save(written);
  if (!before_.empty()) before_.restore(written);
  run();
  const std::string about = corruption(in_layer(call.name));
  AXONN_CHECK(first_.are_those_of(written) || second_.are_those_of(written), about,
              " has three different results for the same operands; faulty hardware is likely. "
              "Resume from the newest checkpoint (checkpoint.resume = \"auto\"), without that "
              "rank's node");
  remark(
      concat(about, " had two different results for the same operands; the third, which agrees ",
             "with one of them, is taken. If this happens there again, take that rank's node out"));
}

}  // namespace axonn
