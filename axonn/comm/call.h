#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "axonn/comm/communicator.h"

namespace axonn {

/// One rank's call of a collective, with checked arguments, as transports receive it.
///
///   operation       out          inp          peer
///   all_reduce      data (n)     data (n)     -
///   all_gather      (size · n)   (n)          -
///   reduce_scatter  (n)          (size · n)   -
///   broadcast       data (n)     data (n)     root
///   all_to_all      (size · n)   (size · n)   -
///   send            -            data (n)     to
///   recv            data (n)     -            from
struct Call {
  Operation operation = Operation::barrier;
  ReduceOp op = ReduceOp::sum;
  Buffer out, inp;
  int peer = -1;
  std::string label;

  DType dtype() const { return operation == Operation::send ? inp.dtype : out.dtype; }
  /// n of the table: the elements that one rank gives to, or gets from, another.
  std::int64_t count(int size) const;
  /// Bytes of the larger buffer.
  std::int64_t bytes() const;
};

/// Describes a call: "all_reduce (sum) of 1024 f32 'block 3 mlp.down'".
std::string describe(const Call& call);

/// Whether two ranks' calls match: the same operation, count, type and root, or a send and its
/// recv.
bool agree(const Call& a, const Call& b);

/// `count` elements of a buffer from element `begin` on.
inline Buffer part(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return {static_cast<char*>(buffer.data) + begin * bytes_of(buffer.dtype), count, buffer.dtype};
}

}  // namespace axonn
