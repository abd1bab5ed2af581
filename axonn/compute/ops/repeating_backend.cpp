#include "axonn/compute/ops/repeating_backend.h"

#include <cstring>
#include <utility>

#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

void save(std::span<const View> views, std::vector<std::byte>& to) {
  to.clear();
  for (const View& view : views)
    for_runs(view, [&](const std::byte* data, std::int64_t bytes) {
      to.insert(to.end(), data, data + bytes);
    });
}

void restore(std::span<const View> views, const std::vector<std::byte>& from) {
  const std::byte* at = from.data();
  for (const View& view : views)
    for_runs(view, [&](std::byte* data, std::int64_t bytes) {
      std::memcpy(data, at, bytes);
      at += bytes;
    });
}

bool are_equal(std::span<const View> views, const std::vector<std::byte>& to) {
  const std::byte* at = to.data();
  bool equal = true;
  for (const View& view : views)
    for_runs(view, [&](const std::byte* data, std::int64_t bytes) {
      equal = equal && std::memcmp(data, at, bytes) == 0;
      at += bytes;
    });
  return equal;
}

}  // namespace

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
  if (!overwrites) save(written, before_);
  run();
  save(written, first_);
  if (!overwrites) restore(written, before_);
  run();
  if (!are_equal(written, first_)) decide(call, written, run);
}

void RepeatingBackend::decide(const OperationCall& call, std::span<const View> written,
                              const std::function<void()>& run) {
  save(written, second_);
  if (!before_.empty()) restore(written, before_);
  run();
  const std::string about = corruption(in_layer(call.name));
  AXONN_CHECK(are_equal(written, first_) || are_equal(written, second_), about,
              " has three different results for the same operands; faulty hardware is likely. "
              "Resume from the newest checkpoint (checkpoint.resume = \"auto\"), without that "
              "rank's node");
  remark(
      concat(about, " had two different results for the same operands; the third, which agrees ",
             "with one of them, is taken. If this happens there again, take that rank's node out"));
}

}  // namespace axonn
