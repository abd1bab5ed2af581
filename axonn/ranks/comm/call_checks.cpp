#include "axonn/ranks/comm/call_checks.h"

#include <cstring>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

RepeatedCall::RepeatedCall(const Call& call, std::string what)
    : first_(call.out), second_(call), out_(call.out.bytes()), what_(std::move(what)) {
  if (first_.count > 0) second_.out.data = out_.data();
  if (apart(call.out, call.inp)) return;
  if (call.out.data == call.inp.data && call.out.count == call.inp.count) {
    std::memcpy(out_.data(), call.inp.data, out_.size());  // in place, as the first
    second_.inp = second_.out;
    return;
  }
  inp_.resize(call.inp.bytes());
  std::memcpy(inp_.data(), call.inp.data, inp_.size());
  second_.inp.data = inp_.data();
}

std::string RepeatedCall::difference() const {
  if (out_.empty() || std::memcmp(out_.data(), first_.data, out_.size()) == 0) return {};
  return concat(what_,
                " has two different results for the same bytes of all ranks; faulty memory, ",
                "a faulty processor or a faulty network is likely. Resume from the newest "
                "checkpoint (checkpoint.resume = \"auto\")");
}

}  // namespace axonn
