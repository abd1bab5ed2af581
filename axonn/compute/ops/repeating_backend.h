#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/ops/checking_backend.h"
#include "axonn/compute/ops/saved_values.h"

namespace axonn {

/// Computes each operation twice from the same bytes, and a third time where the two results
/// differ: two that agree are taken, with a remark; if none agree, it throws Error. For memory of
/// the host. The operations of a program's own are done once, as they may keep values elsewhere.
///
/// Finds any bit of a result that a processor computes wrongly at times, or that flips before it
/// is compared. Not one that it always computes wrongly: VerifyingBackend. Takes twice as long, and
/// memory for the results of an operation, twice if it adds to what was there.
class RepeatingBackend final : public CheckingBackend {
 public:
  using CheckingBackend::CheckingBackend;
  void product(const Matmul& args) override;
  void on_host(const HostOperation& operation) override;

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override;

 private:
  void decide(const OperationCall& call, std::span<const View> written,
              const std::function<void()>& run);

  bool overwrites_ = false, once_ = false;  // the operation that is under way
  // The written bytes before an operation and after its repetitions.
  SavedValues before_ = {}, first_ = {}, second_ = {};
};

}  // namespace axonn
