#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "axonn/comm/call.h"

namespace axonn {

/// One collective among all of a world, for messages: which call, of which group.
struct Place {
  Operation operation = Operation::barrier;
  std::string label;
  std::string group;
  std::int64_t sequence = -1;  ///< counts the group's calls from 0; -1: none yet
};

/// "all_gather 'block 2 qkv' (call 16 of group z)", or "no collective".
std::string describe(const Place& place);

/// What the watchdog knows of a rank of a group in which a collective hangs.
struct PeerReport {
  enum class Standing {
    arrived,    ///< started the collective
    elsewhere,  ///< lives, and has not started it
    returned,   ///< ended its work without it
    silent      ///< gave no answer: it is stopped, dead, or cut off
  };
  int world_rank = 0;
  Standing standing = Standing::silent;
  Place last;  ///< what it started last, if it is elsewhere
};

/// The watchdog's message: the call, how long it was waited for, who came, who did not and was
/// where, who gave no answer.
std::string hang_report(const std::string& call, double seconds, std::span<const PeerReport> peers);

/// "0-3, 5": ranks in ascending order.
std::string list_ranks(std::span<const int> ranks);

}  // namespace axonn
