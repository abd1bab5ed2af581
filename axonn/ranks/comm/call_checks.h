#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axonn/ranks/comm/call.h"

namespace axonn {

/// What a rank does before and after each of its collectives, to find silent corruption. All ranks
/// have the same checks.
struct CallChecks {
  /// Called with what a call reads, before it and when it is done; may throw Error.
  std::function<void(const Buffer&inp, const std::string&what)> before = {}, after = {};
  /// Called with what it writes, before it begins and when it is done.
  std::function<void(const Buffer&out)> begins = {}, done = {};
  /// Does each call twice, and throws Error if a rank gets two different results. They take twice
  /// as long, and memory for another result.
  bool twice = false;
  std::string rank = {};   ///< begins the message: "rank 3"
  std::string fault = {};  ///< found where nothing could be thrown: the next call throws it
};

/// A second call in memory of its own, of the same inputs, beside one that is not yet started.
class RepeatedCall {
 public:
  /// Copies the inputs if the call overwrites them.
  RepeatedCall(const Call& call, std::string what);

  const Call& call() const { return second_; }
  /// The difference of the two results; "" if there is none. Called when both are done.
  std::string difference() const;

 private:
  Buffer first_;
  Call second_;
  std::vector<std::byte> out_, inp_;
  std::string what_;
};

}  // namespace axonn
