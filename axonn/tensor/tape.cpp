#include "axonn/tensor/tape.h"

#include <utility>

namespace axonn {

std::shared_ptr<Tape> Tape::branch() {
  auto later = std::make_shared<Tape>();
  entries_.emplace_back(later);
  return later;
}

Tape& Tape::lane(std::size_t i) {
  if (entries_.empty() || !std::holds_alternative<Lanes>(entries_.back()))
    entries_.emplace_back(Lanes());
  Lanes& lanes = std::get<Lanes>(entries_.back());
  while (lanes.size() <= i) lanes.push_back(std::make_shared<Tape>());
  return *lanes[i];
}

Tape& Tape::first_lane() {
  if (entries_.empty() || !std::holds_alternative<Lanes>(entries_.back())) return *this;
  return *std::get<Lanes>(entries_.back()).front();
}

Tape& Tape::last_lane() {
  if (entries_.empty() || !std::holds_alternative<Lanes>(entries_.back())) return *this;
  return *std::get<Lanes>(entries_.back()).back();
}

bool Tape::run() {
  while (!entries_.empty()) {
    const Entry entry = std::move(entries_.back());
    entries_.pop_back();
    if (std::holds_alternative<Pause>(entry)) return false;
    if (const auto* step = std::get_if<std::function<void()>>(&entry)) {
      (*step)();
    } else if (const auto* lanes = std::get_if<Lanes>(&entry)) {
      run_in_turns(*lanes);
    } else if (const Branch& branch = std::get<Branch>(entry); !branch->run()) {
      entries_.emplace_back(branch);
      return false;
    }
  }
  return true;
}

void Tape::run_in_turns(const Lanes& lanes) {
  for (bool done = false; !done;) {
    done = true;
    for (const auto& lane : lanes) done = lane->run() && done;
  }
}

}  // namespace axonn
