#include "axonn/compute/tensor/tape.h"

#include <utility>

namespace axonn {

std::shared_ptr<Tape> Tape::branch() {
  auto later = std::make_shared<Tape>();
  entries_.emplace_back(later);
  return later;
}

Tape& Tape::lane(std::size_t i) {
  if (!lanes()) entries_.emplace_back(Lanes());
  Lanes& all = *lanes();
  while (all.size() <= i) all.push_back(std::make_shared<Tape>());
  return *all[i];
}

Tape& Tape::first_lane() { return lanes() ? *lanes()->front() : *this; }

Tape& Tape::last_lane() { return lanes() ? *lanes()->back() : *this; }

bool Tape::run() {
  while (!entries_.empty()) {
    const Entry entry = std::move(entries_.back());
    entries_.pop_back();
    if (std::holds_alternative<Pause>(entry)) return false;
    if (const auto* step = std::get_if<std::function<void()>>(&entry)) {
      (*step)();
    } else if (const auto* in_turns = std::get_if<Lanes>(&entry)) {
      for (bool done = false; !done;) {
        done = true;
        for (const auto& lane : *in_turns) done = lane->run() && done;
      }
    } else if (const Branch& branch = std::get<Branch>(entry); !branch->run()) {
      entries_.emplace_back(branch);
      return false;
    }
  }
  return true;
}

}  // namespace axonn
