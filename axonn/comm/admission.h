#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace axonn {

/// Which collectives of a rank may be under way: of each group at most `slots`, begun in the order
/// of their calls, but small ones pass large ones, of which a group has at most `large_at_once`.
///
/// A few large ones have the link to themselves, and the oldest is soon done; all at once they
/// would share it, and all be done late. Computing waits for the oldest first.
///
/// No rank waits for its turn for ever: when a collective may begin depends on earlier ones of the
/// same group alone, and a rank that has made a call of a group has made all earlier ones. So of
/// those that all members have called for, the first of a group may begin on every member, and
/// ends; then the next may, and so on. What goes on in other groups plays no part, nor does the
/// order in which ranks call on several groups.
class Admission {
 public:
  Admission(int slots, int large_at_once) : slots_(slots), large_at_once_(large_at_once) {}

  /// A pass asks may_begin() of the collectives that wait, in the order of their calls.
  void begin_pass();
  /// Whether call `sequence` (0, 1, ...) of the group may begin; it has then.
  bool may_begin(int group, std::int64_t sequence, bool large);
  void ended(int group, std::int64_t sequence, bool large);

 private:
  struct Line {
    std::vector<std::int64_t> owners;    // of each slot: a sequence, or kNobody
    int large = 0;                       // under way
    bool open = true, for_large = true;  // to what comes later in the pass
  };
  Line& line(int group);

  int slots_, large_at_once_;
  std::map<int, Line> lines_;
};

}  // namespace axonn
