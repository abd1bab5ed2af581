#pragma once

#include <cstdint>

namespace axonn::cluster {

/// What befalls one message between ranks that are processes of MPI. Messages of the transport's
/// collectives are counted from 1, in the order in which they are sent.
struct MessageFault {
  enum class Kind {
    none,
    late,
    cut,   ///< only the first half arrives
    torn,  ///< the second half has other bytes
    lost,  ///< it never arrives
  };
  Kind kind = Kind::none;
  std::int64_t message = 0;
  double seconds = 0;  ///< of a late one
};

}  // namespace axonn::cluster
