#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

Context::Context(Backend& compute, Arena& memory, const Grid& ranks, DType type)
    : backend(compute),
      grid(ranks),
      dtype(type),
      arena_(memory),
      scheduling_(std::make_shared<Scheduling>()) {}

bool Context::training() const { return tape || scheduling_->scope.rerun != Rerun::none; }

Tensor Context::on_device(std::span<const std::int32_t> host) const {
  if (host.empty()) return {};
  Tensor tensor = empty(1, std::ssize(host), DType::i32);
  device().copy_from_host(tensor.view().data, host.data(), tensor.bytes());
  return tensor;
}

Scheduling& Context::own_scheduling() {
  const auto own = std::make_shared<Scheduling>(*scheduling_);
  scheduling_ = own;
  return *own;
}

void Prefetcher::begin_pass() {
  known_ = !order_.empty();
  position_ = 0;
}

ParameterGroup* Prefetcher::after(ParameterGroup& group) {
  if (known_ && (position_ >= order_.size() || order_[position_] != &group)) {
    order_.resize(position_);  // this pass differs from the last one: learn its order
    known_ = false;
  }
  if (!known_) order_.push_back(&group);
  ++position_;
  return known_ && position_ < order_.size() ? order_[position_] : nullptr;
}

}  // namespace axonn
