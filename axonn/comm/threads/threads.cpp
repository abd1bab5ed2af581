#include "axonn/comm/threads/threads.h"

#include <exception>
#include <numeric>
#include <optional>
#include <thread>

#include "axonn/comm/call.h"
#include "axonn/comm/self.h"
#include "axonn/comm/threads/thread_group.h"

namespace axonn {

namespace {

class MeetingState final : public Work::State {
 public:
  MeetingState(std::shared_ptr<Rendezvous> meeting, int party)
      : meeting_(std::move(meeting)), party_(party) {}
  void wait() override { meeting_->wait(party_); }
  bool done() override { return meeting_->done(); }

 private:
  std::shared_ptr<Rendezvous> meeting_;
  int party_;
};

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(group->name(), rank, static_cast<int>(group->members().size())),
        group_(std::move(group)) {}

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    Part part = agree_on_part(color, name);
    const std::int64_t sequence = splits_++;
    if (part.members.size() == 1) return make_self(std::move(name), group_->world()->flag());
    for (int& member : part.members) member = group_->members()[member];
    return std::make_unique<ThreadsCommunicator>(
        group_->child(sequence, std::move(part.members), name), part.rank);
  }

  bool in_one_process() const override { return true; }

  void abort(const std::string& reason) noexcept override { group_->world()->flag()->set(reason); }
  std::string end_reason() const override { return group_->world()->flag()->reason_if_set(); }
  void give_up(const std::string& reason) noexcept override {
    abort(reason);
    if (const auto& on_hang = group_->world()->options().on_hang) on_hang(reason);
  }

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    int party = 0;
    auto meeting = group_->start(rank(), call, party);
    return std::make_shared<MeetingState>(std::move(meeting), party);
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::int64_t splits_ = 0;
};

/// Keeps the first error of any rank, with "rank R: " before its message.
class FirstError {
 public:
  /// Keeps the current exception if it is the first, and returns its message. Call it in a catch
  /// block.
  std::string keep_current(int rank) {
    std::string message;
    std::exception_ptr error;
    try {
      throw;
    } catch (const UsageError& e) {
      message = concat("rank ", rank, ": ", e.what());
      error = std::make_exception_ptr(UsageError(message, e.where()));
    } catch (const Error& e) {
      message = concat("rank ", rank, ": ", e.what());
      error = std::make_exception_ptr(Error(message, e.where()));
    } catch (const std::exception& e) {
      message = concat("rank ", rank, ": ", e.what());
      error = std::make_exception_ptr(Error(message));
    } catch (...) {
      message = concat("rank ", rank, ": an exception of an unknown type");
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    return message;
  }

  void rethrow_if_any() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

using Body = std::function<void(Communicator& world)>;

void run_rank(const std::shared_ptr<ThreadGroup>& group, int rank, const Body& body,
              FirstError& first) {
  const auto& world = group->world();
  try {
    const auto communicator = group->members().size() == 1
                                  ? make_self(group->name(), world->flag())
                                  : std::make_unique<ThreadsCommunicator>(group, rank);
    body(*communicator);
  } catch (const Aborted&) {  // the rank that failed first reports its error
  } catch (...) {
    world->flag()->set(first.keep_current(rank));
  }
  world->note_returned(rank);
}

}  // namespace

void run_ranks(int ranks, const Body& body, const ThreadsOptions& options) {
  AXONN_CHECK(ranks > 0, "run_ranks needs at least one rank, got ", ranks);
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const auto world = ThreadWorld::create(ranks, options);
  const auto group = std::make_shared<ThreadGroup>(world, members, "world");
  FirstError first;
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] { run_rank(group, rank, body, first); });
    } catch (const std::system_error& e) {
      const std::string reason =
          concat("starting rank ", threads.size(), " of ", ranks, " as a thread: ", e.what());
      world->flag()->set(reason);
    }
  }
  first.rethrow_if_any();
  if (*world->flag()) throw Error(world->flag()->reason());
}

}  // namespace axonn
