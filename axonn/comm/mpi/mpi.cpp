#include "axonn/comm/mpi/mpi.h"

#include <map>
#include <numeric>

#include "axonn/comm/call.h"
#include "axonn/comm/mpi/mpi_engine.h"
#include "axonn/comm/self.h"

namespace axonn {

namespace {

/// The smallest id that this process may give to its next group; see MpiGroup::id.
using NextGroup = std::shared_ptr<int>;

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiEngine& engine, std::shared_ptr<const MpiGroup> group, NextGroup next)
      : Communicator(group->name, group->rank, group->size()),
        engine_(engine),
        group_(std::move(group)),
        next_(std::move(next)) {}

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    const Part part = agree_on_part(color, name, *next_);
    auto group = std::make_shared<MpiGroup>();
    group->id = part.largest_number;
    group->rank = part.rank;
    for (const int member : part.members) group->members.push_back(group_->members[member]);
    *next_ = group->id + 1;  // above every id that any of these ranks has used
    AXONN_CHECK(*next_ <= engine_.max_groups(), "split of group ", group_->name,
                ": the message tags of this MPI suffice for ", engine_.max_groups(),
                " groups only");
    group->name = name;
    if (group->size() == 1) return make_self(std::move(name), engine_.flag());
    return std::make_unique<MpiCommunicator>(engine_, std::move(group), next_);
  }

  void abort(const std::string& reason) noexcept override { engine_.abort(reason, 1); }
  std::string end_reason() const override { return engine_.flag()->reason_if_set(); }
  double progress_seconds() const override { return engine_.processor_seconds(); }

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    const std::int64_t sequence = started_[channel_of(rank(), call)]++;
    return engine_.start(group_, std::move(call), sequence);
  }

 private:
  MpiEngine& engine_;
  std::shared_ptr<const MpiGroup> group_;
  NextGroup next_;
  std::map<Channel, std::int64_t> started_;  // number of calls by channel
};

std::shared_ptr<const MpiGroup> everyone(const MpiEngine& engine, int id, std::string name) {
  auto group = std::make_shared<MpiGroup>();
  group->id = id;
  group->rank = engine.rank();
  group->members.resize(engine.size());
  std::iota(group->members.begin(), group->members.end(), 0);
  group->name = std::move(name);
  return group;
}

constexpr int kWorldId = 0, kEndId = 1, kFirstFreeId = 2;

/// Waits until all ranks have returned. Meanwhile, this rank answers the probes of ranks that still
/// run.
void meet_at_the_end(MpiEngine& engine) {
  engine.note_returned();
  if (engine.size() == 1) return;
  Call call;
  call.label = "end of the run";
  engine.start(everyone(engine, kEndId, "end"), call, 0)->wait();
}

}  // namespace

void run_mpi(const std::function<void(Communicator& world)>& body, const MpiOptions& options) {
  MpiEngine engine(options);
  const auto fails = [&](const std::exception& error, int code) {
    engine.abort(concat("rank ", engine.rank(), ": ", error.what()), code);
    engine.await_end();
  };
  try {
    const auto next = std::make_shared<int>(kFirstFreeId);
    const std::unique_ptr<Communicator> world =
        engine.size() == 1
            ? make_self("world", engine.flag())
            : std::make_unique<MpiCommunicator>(engine, everyone(engine, kWorldId, "world"), next);
    body(*world);
    meet_at_the_end(engine);
  } catch (const Aborted&) {  // the rank that failed first reports its error
    engine.await_end();
  } catch (const UsageError& error) {
    fails(error, 2);
  } catch (const std::exception& error) {
    fails(error, 1);
  } catch (...) {
    fails(Error("an exception of an unknown type"), 1);
  }
}

}  // namespace axonn
