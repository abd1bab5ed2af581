#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace axonn {

/// Decides which collectives of a rank may be in flight: at most `slots` of each group, begun in
/// call order, except that small ones may overtake large ones. At most `large_at_once` large ones
/// of a group are in flight.
///
/// The limit lets the oldest large collective, for which compute waits first, finish early. If all
/// ran at once, they would share the link and all finish late.
///
/// This cannot deadlock. Whether a collective may begin depends only on earlier ones of its group,
/// and a rank that has called one has called all earlier ones. So the first unfinished collective
/// that all members have called may begin on every member, and it finishes; then the next may, and
/// so on. Other groups have no influence, nor has the order in which a rank calls several groups.
class FlowControl {
 public:
  FlowControl(int slots, int large_at_once) : slots_(slots), large_at_once_(large_at_once) {}

  /// Begins a pass, in which may_begin() is called for all waiting collectives in call order.
  void begin_pass() {
    for (auto& [group, line] : lines_) line.open = line.for_large = true;
  }

  /// Whether call `sequence` (0, 1, ...) of the group may begin. If true, it counts as begun.
  bool may_begin(int group, std::int64_t sequence, bool large) {
    Line& at = line(group);
    std::int64_t& owner = at.owners[sequence % slots_];
    at.open = at.open && (owner == kNobody || owner == sequence);
    if (!at.open) return false;
    owner = sequence;  // even if it must wait: a later call that overtakes it needs another slot
    if (!large) return true;
    at.for_large = at.for_large && at.large < large_at_once_;
    if (at.for_large) ++at.large;
    return at.for_large;
  }

  void ended(int group, std::int64_t sequence, bool large) {
    Line& at = line(group);
    at.owners[sequence % slots_] = kNobody;
    if (large) --at.large;
  }

 private:
  static constexpr std::int64_t kNobody = -1;
  struct Line {
    std::vector<std::int64_t> owners;    // by slot: the sequence that holds it, or kNobody
    int large = 0;                       // large ones in flight
    bool open = true, for_large = true;  // whether later calls in this pass may begin
  };
  Line& line(int group) {
    Line& line = lines_[group];
    if (line.owners.empty()) line.owners.assign(slots_, kNobody);
    return line;
  }

  int slots_, large_at_once_;
  std::map<int, Line> lines_;
};

}  // namespace axonn
