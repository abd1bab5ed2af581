#include "tests/support/faulty_communicator.h"

#include <cstring>
#include <utility>

#include "axonn/base/check.h"

namespace axonn::testing_support {

FaultyCommunicator::FaultyCommunicator(Communicator& inner, CommFault fault)
    : inner_(inner),
      name_("world"),
      shared_(std::make_shared<Shared>(Shared{std::move(fault), {{"world", &inner}}, 0})) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> inner, std::string name,
                                       std::shared_ptr<Shared> shared)
    : owned_(std::move(inner)),
      inner_(*owned_),
      name_(std::move(name)),
      shared_(std::move(shared)) {
  shared_->groups[name_] = &inner_;
}

Work FaultyCommunicator::run(std::string_view operation, std::string_view label, Buffer data,
                             const Call& call) {
  const CommFault& fault = shared_->fault;
  if (!fault.hits || !fault.hits({operation, name_, label, rank(), data})) return call(inner_);
  ++shared_->hits;
  switch (fault.kind) {
    case CommFault::Kind::drop:
      return {};
    case CommFault::Kind::redirect:
      return call(*shared_->groups.at(fault.to));
    case CommFault::Kind::mute:
      AXONN_CHECK(operation == "all_reduce" && data.dtype == DType::f32, "mute: ", operation,
                  " of ", name_of(data.dtype), "; it supports all_reduce of f32 only");
      std::memset(data.data, 0, data.bytes());
      return call(inner_);
  }
  return {};
}

Work FaultyCommunicator::all_reduce(Buffer data, std::string_view label, ReduceOp op) {
  return run("all_reduce", label, data,
             [&](Communicator& group) { return group.all_reduce(data, label, op); });
}

Work FaultyCommunicator::all_gather(Buffer out, Buffer inp, std::string_view label) {
  return run("all_gather", label, out,
             [&](Communicator& group) { return group.all_gather(out, inp, label); });
}

Work FaultyCommunicator::reduce_scatter(Buffer out, Buffer inp, std::string_view label) {
  // If the sum is dropped, the rank is left with its own summand.
  std::memmove(out.data, static_cast<const char*>(inp.data) + rank() * out.bytes(), out.bytes());
  return run("reduce_scatter", label, out,
             [&](Communicator& group) { return group.reduce_scatter(out, inp, label); });
}

Work FaultyCommunicator::broadcast(Buffer data, int root, std::string_view label) {
  return run("broadcast", label, data,
             [&](Communicator& group) { return group.broadcast(data, root, label); });
}

Work FaultyCommunicator::all_to_all(Buffer out, Buffer inp, std::string_view label) {
  return run("all_to_all", label, out,
             [&](Communicator& group) { return group.all_to_all(out, inp, label); });
}

Work FaultyCommunicator::send(Buffer data, int to, std::string_view label) {
  return run("send", label, data, [&](Communicator& group) { return group.send(data, to, label); });
}

Work FaultyCommunicator::recv(Buffer data, int from, std::string_view label) {
  return run("recv", label, data,
             [&](Communicator& group) { return group.recv(data, from, label); });
}

std::unique_ptr<Communicator> FaultyCommunicator::split(int color, std::string name) {
  auto group = inner_.split(color, name);
  return std::unique_ptr<Communicator>(
      new FaultyCommunicator(std::move(group), std::move(name), shared_));
}

}  // namespace axonn::testing_support
