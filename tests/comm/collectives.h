#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/comm/communicator.h"

namespace axonn {

/// Every collective on every type it takes (f32 and bf16 where count is large), in place too,
/// against plain loops, to the bit. `count` is one rank's part. Failures are reported by EXPECT;
/// all ranks go on.
void check_collectives(Communicator& comm, std::int64_t count);

/// Splits the world in several ways, starts collectives on all groups at once, and waits for them
/// in an order that is another one on each rank.
void check_many_in_flight(Communicator& world, int rounds);

/// Orders and names of the groups that a split makes, and that they can be split again.
void check_split(Communicator& world);

/// Messages between all pairs, several in flight.
void check_send_recv(Communicator& world);

/// A hash of the sums of values whose rounding depends on the order of summation: the same on all
/// ranks, and on every transport.
std::uint64_t hash_of_sums(Communicator& world);

/// All of the above, on the world and on its first 1, 2, ... ranks.
void check_transport(Communicator& world);

/// The sizes of the worlds that check_transport() is given: one rank, two, and several. Under
/// sanitizers three ranks alone.
std::vector<int> some_ranks();

}  // namespace axonn
