#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Checks every collective on every type that it supports (only f32 and bf16 if count is large),
/// also in place, bit for bit against plain loops. `count` is one rank's part. Failures are
/// reported by EXPECT, and all ranks continue.
void check_collectives(Communicator& comm, std::int64_t count);

/// Checks all_to_alls with counts: all of them 0, one rank that gives everything, one that gets
/// everything, and random ones, several in flight, in f32, bf16 and i32.
void check_exchange(Communicator& comm);

/// Splits the world in several ways, starts collectives on all groups at once, and waits for them
/// in a different order on each rank.
void check_many_in_flight(Communicator& world, int rounds);

/// Checks the members and the order of the groups that a split makes, and that they can be split
/// again.
void check_split(Communicator& world);

/// Checks messages between all pairs of ranks, several in flight.
void check_send_recv(Communicator& world);

/// A hash of sums whose rounding depends on the order of summation. It must be the same on all
/// ranks and on all transports that sum in the order of reduce.h.
std::uint64_t hash_of_sums(Communicator& world);

/// Runs the checks above on the world, and those of collectives and exchanges also on its first 1,
/// 2, ... ranks.
void check_transport(Communicator& world);

/// The sizes of the worlds that check_transport() is given: one rank, two, and several. Under
/// sanitizers three ranks alone.
std::vector<int> some_ranks();

}  // namespace axonn
