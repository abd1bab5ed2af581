#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/timeout.h"

namespace axonn {

/// A channel of one of the world's groups.
struct MpiChannel {
  int group = 0;  ///< MpiGroup::id
  Channel of;
  auto operator<=>(const MpiChannel&) const = default;
};

/// A call, as all ranks of its channel know it.
struct MpiCall {
  MpiChannel channel;
  std::int64_t sequence = 0;
};

/// Where a rank is, for another one that waits for it in a call.
struct MpiRankState {
  int awaited = -1;  ///< the rank of the world that it waits for; -1: none
  MpiCall in;        ///< the call in which it waits
  bool returned = false;
  std::int64_t progress = 0;  ///< Culprit::progress
  CallId id;                  ///< of `in`; if it does not wait, of its last call
};

/// Follows the chain of waits that begins with a call of this rank: asks one rank after another.
struct MpiProbe {
  MpiCall call;  ///< that the next rank of the chain is asked about
  /// A chain through a tree of ranks has some dozens of waits. At the end of a longer one, another
  /// rank, nearer to the culprit, finds it.
  std::size_t most_waits = 64;
  std::vector<RankWait> waits;
  Culprit culprit;
  bool cut = false;     ///< the chain is longer than most_waits
  std::int64_t id = 0;  ///< of the question
  int asked = -1;
  double deadline = 0;  ///< for the answer, on the prober's clock
  bool done = false;    ///< guarded by the engine's mutex
};

/// A message of the side channel.
struct MpiNote {
  enum class Kind : std::int32_t {
    question,  ///< of a probe
    answer,    ///< to it
    end,       ///< the world has ended
    left,      ///< rank 0 has left its body, after the end
    noted,     ///< to rank 0: the sender's note_progress() since its last one
    all_noted  ///< the answer: of all ranks
  };
  Kind kind = Kind::question;
  std::int32_t awaited = -1, returned = 0;
  Operation operation = Operation::barrier;
  std::int64_t probe = 0, progress = 0, last = -1;  // last: CallId::sequence
  MpiCall call = {};  // of a question: what it is about; of an answer: MpiRankState::in
  std::array<char, 64> group = {};
  std::array<char, 2048> text = {};  // CallId::label, or the reason of the end; sent up to its 0

  template <std::size_t N>
  static void put(std::array<char, N>& to, const std::string& text) {
    to[text.copy(to.data(), N - 1)] = '\0';
  }
};

/// One rank's probes: its questions, and its answers to those of others.
///
/// A rank has one question at a time to another one, and asks at most MpiProbe::most_waits ranks in
/// a probe. So messages grow in proportion to the ranks, and a rank that cannot answer buffers at
/// most one short message of each other rank.
class MpiProber {
 public:
  struct Handlers {
    std::function<void(const MpiNote&, int to)> send;
    /// Called when a probe has found the culprit, or a rank that does not answer in time.
    std::function<void(MpiProbe&)> found;
    /// This rank's state, for another one that waits for it in a call.
    std::function<MpiRankState(const MpiCall&)> state;
  };

  MpiProber(int rank, Handlers handlers, std::function<double()> clock = now_seconds)
      : rank_(rank), handlers_(std::move(handlers)), clock_(kLongestPause, std::move(clock)) {}

  /// Begins a probe; it replaces an earlier one.
  void ask(std::shared_ptr<MpiProbe> probe) {
    probe_ = std::move(probe);
    follow(rank_, handlers_.state(probe_->call));
  }

  /// Handles a question or an answer.
  void take(const MpiNote& note, int from) {
    if (note.kind == MpiNote::Kind::question) return answer(note, from);
    unanswered_.erase(from);
    if (!probe_ || note.probe != probe_->id || from != probe_->asked) return;  // too late
    follow(from, {.awaited = note.awaited,
                  .in = note.call,
                  .returned = note.returned != 0,
                  .progress = note.progress,
                  .id = {note.operation, note.text.data(), note.group.data(), note.last}});
  }

  /// Ends a probe without an answer. To be called at every poll: long pauses do not count.
  void check_deadline() {
    const double now = clock_.now();
    if (probe_ && now >= probe_->deadline) found();
  }

  bool busy() const { return probe_ != nullptr; }

 private:
  /// Time limit for answers. A progress thread answers within its longest sleep (20 ms), but later
  /// on a busy machine.
  static constexpr double kAnswerSeconds = 2, kLongestPause = 0.1;

  void answer(const MpiNote& question, int to) {
    const MpiRankState state = handlers_.state(question.call);
    MpiNote note{.kind = MpiNote::Kind::answer,
                 .awaited = state.awaited,
                 .returned = state.returned ? 1 : 0,
                 .operation = state.id.operation,
                 .probe = question.probe,
                 .progress = state.progress,
                 .last = state.id.sequence,
                 .call = state.in};
    MpiNote::put(note.group, state.id.group);
    MpiNote::put(note.text, state.id.label);
    handlers_.send(note, to);
  }

  /// Continues the probe with the state of the last rank of its chain.
  void follow(int rank, const MpiRankState& state) {
    MpiProbe& probe = *probe_;
    probe.culprit = {state.returned ? Culprit::State::returned : Culprit::State::running,
                     state.progress, state.id};
    if (state.awaited < 0) return found();
    probe.waits.push_back({rank, state.awaited, state.id});
    probe.culprit.state = Culprit::State::waiting;
    const bool closed = std::ranges::count(probe.waits, state.awaited, &RankWait::rank) > 0;
    probe.cut = !closed && probe.waits.size() >= probe.most_waits;
    if (closed || probe.cut) return found();
    probe.call = state.in;
    probe.culprit = {};  // silent, unless it answers
    probe.asked = state.awaited;
    probe.id = next_id_++;
    probe.deadline = clock_.now() + kAnswerSeconds;
    if (unanswered_.insert(probe.asked).second)
      handlers_.send({.kind = MpiNote::Kind::question, .probe = probe.id, .call = probe.call},
                     probe.asked);
  }

  void found() { handlers_.found(*std::exchange(probe_, nullptr)); }

  int rank_;
  Handlers handlers_;
  RunningClock clock_;
  std::shared_ptr<MpiProbe> probe_;
  std::int64_t next_id_ = 0;
  std::set<int> unanswered_;  // ranks that have not answered a question
};

}  // namespace axonn
