#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "axonn/comm/call.h"

namespace axonn {

/// A call in messages of a watchdog: its number and its group.
struct CallId {
  Operation operation = Operation::barrier;
  std::string label;
  std::string group;
  std::int64_t sequence = -1;  ///< number of the call in the group, from 0; -1: no call yet
};

/// Describes a call: "all_gather 'block 2 qkv' (call 16 of group z)", or "no collective".
std::string describe(const CallId& id);

/// The state of one rank of a group in which a collective hangs, as far as the watchdog knows it.
struct PeerReport {
  enum class Standing {
    arrived,    ///< has started the collective
    elsewhere,  ///< is alive but has not started it
    returned,   ///< has returned from its body without starting it
    silent      ///< gave no answer: it is stopped, dead or disconnected
  };
  int world_rank = 0;
  Standing standing = Standing::silent;
  CallId last;  ///< what it started last, if it is `elsewhere`
};

/// The watchdog's message: the call, how long the rank waited, which ranks arrived, which did not
/// and what they started last, which returned, and which gave no answer.
std::string hang_report(const std::string& call, double seconds, std::span<const PeerReport> peers);

/// Lists ranks, given in ascending order: "0-3, 5".
std::string list_ranks(std::span<const int> ranks);

}  // namespace axonn
