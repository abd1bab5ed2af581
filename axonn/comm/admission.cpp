#include "axonn/comm/admission.h"

namespace axonn {

namespace {

constexpr std::int64_t kNobody = -1;

}  // namespace

void Admission::begin_pass() {
  for (auto& [group, line] : lines_) line.open = line.for_large = true;
}

Admission::Line& Admission::line(int group) {
  Line& line = lines_[group];
  if (line.owners.empty()) line.owners.assign(slots_, kNobody);
  return line;
}

bool Admission::may_begin(int group, std::int64_t sequence, bool large) {
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

void Admission::ended(int group, std::int64_t sequence, bool large) {
  Line& at = line(group);
  at.owners[sequence % slots_] = kNobody;
  if (large) --at.large;
}

}  // namespace axonn
