#include "tests/support/faulty_communicator.h"

#include <cstring>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn::testing_support {

FaultyCommunicator::FaultyCommunicator(Communicator& inner, CommFault fault)
    : Communicator("world", inner.rank(), inner.size()),
      inner_(inner),
      shared_(std::make_shared<Shared>(Shared{std::move(fault), {{"world", &inner}}, 0})) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> inner, std::string name,
                                       std::shared_ptr<Shared> shared)
    : Communicator(std::move(name), inner->rank(), inner->size()),
      owned_(std::move(inner)),
      inner_(*owned_),
      shared_(std::move(shared)) {
  shared_->groups[this->name()] = &inner_;
}

std::shared_ptr<Work::State> FaultyCommunicator::start(Call call) {
  const CommFault& fault = shared_->fault;
  const Buffer data = call.operation == Operation::send ? call.inp : call.out;
  // If the sum is dropped, the rank is left with its own summand.
  if (call.operation == Operation::reduce_scatter)
    std::memmove(data.data, part(call.inp, rank() * data.count, data.count).data, data.bytes());
  if (call.operation == Operation::barrier || !fault.hits ||
      !fault.hits({name_of(call.operation), name(), call.label, rank(), data}))
    return start_on(inner_, std::move(call));
  ++shared_->hits;
  switch (fault.kind) {
    case CommFault::Kind::drop:
      return nullptr;
    case CommFault::Kind::redirect:
      return start_on(*shared_->groups.at(fault.to), std::move(call));
    case CommFault::Kind::mute:
      AXONN_CHECK(call.operation == Operation::all_reduce && data.dtype == DType::f32,
                  "mute: ", describe(call), "; it supports all_reduce of f32 only");
      std::memset(data.data, 0, data.bytes());
      return start_on(inner_, std::move(call));
  }
  return nullptr;
}

std::unique_ptr<Communicator> FaultyCommunicator::split_off(int color, std::string name) {
  auto group = inner_.split(color, name);
  return std::unique_ptr<Communicator>(
      new FaultyCommunicator(std::move(group), std::move(name), shared_));
}

}  // namespace axonn::testing_support
