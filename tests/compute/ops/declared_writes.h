#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/ops/forwarding_backend.h"

namespace axonn {

/// Expects of each operation in the host's memory that it changes no operand but those that it
/// says it writes (OperationCall::writes()).
class DeclaredWrites final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    std::vector<std::vector<std::byte>> before;
    for (const View& view : call.operands) before.push_back(bytes(view));
    run();
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      if (call.writes(i) || shares_memory(call, i)) continue;
      EXPECT_TRUE(bytes(call.operands[i]) == before[i])
          << call.name << " writes operand " << i << ", which kAlsoWrites leaves out";
    }
  }

 private:
  static std::vector<std::byte> bytes(const View& view) {
    const std::int64_t row = view.data ? view.cols * bytes_of(view.dtype) : 0;
    std::vector<std::byte> all(view.data ? view.rows * row : 0);
    for (std::int64_t r = 0; row > 0 && r < view.rows; ++r)
      std::memcpy(all.data() + r * row,
                  static_cast<const std::byte*>(view.data) + r * view.stride * bytes_of(view.dtype),
                  row);
    return all;
  }
  /// Whether a result is in place of an operand.
  static bool shares_memory(const OperationCall& call, std::size_t operand) {
    for (std::size_t i = 0; i < call.operands.size(); ++i)
      if (call.writes(i) && call.operands[i].data == call.operands[operand].data) return true;
    return false;
  }
};

}  // namespace axonn
