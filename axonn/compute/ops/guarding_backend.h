#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "axonn/compute/ops/checking_backend.h"
#include "axonn/compute/ops/value_sums.h"

namespace axonn {

/// Keeps checksums of all that operations and copies write to the arena's memory, and compares them
/// before each that reads or replaces it. A bit that has flipped is set right, with a remark; if
/// more have, it throws Error. Collectives do the same by sums(). For memory of the host.
///
/// Reads the operands of each operation once more before it, and its results once after it.
class GuardingBackend final : public CheckingBackend {
 public:
  GuardingBackend(std::unique_ptr<Backend> inner, int threads, std::string rank);
  ~GuardingBackend() override;

  Device& device() override;
  bool check_memory() override { return judge(sums_.compare_all(), "a checkpoint"); }

  ValueSums& sums() { return sums_; }
  /// Adds a remark, or throws Error, if a comparison before `what` found something. Returns whether
  /// it found nothing.
  bool judge(const ValueSums::Found& found, std::string_view what);

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override;

 private:
  class Guarded;  // the device

  ValueSums sums_;
  std::unique_ptr<Guarded> device_;
};

}  // namespace axonn
