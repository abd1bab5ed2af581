#include "axonn/ranks/comm/dry_world.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/call.h"

namespace axonn {

namespace {

class DryWorld final : public Communicator {
 public:
  struct Member {
    GridShape shape;
    int world_rank;
  };

  DryWorld(std::string name, int rank, int size, Member place, Recording* recording)
      : Communicator(std::move(name), rank, size), place_(place), recording_(recording) {}

  void abort(const std::string&) noexcept override {}

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    if (size() == 1) return nullptr;  // as in groups of one rank of other transports
    return record_start(recording_, {.group = name(),
                                     .ranks = size(),
                                     .operation = std::string(name_of(call.operation)),
                                     .label = call.label,
                                     .bytes = call.bytes()});
  }

  std::unique_ptr<Communicator> split_off(int, std::string name) override {
    const Coords at = coords_of(place_.shape, place_.world_rank);
    const auto group = [&](int rank, int size) {
      return std::make_unique<DryWorld>(std::move(name), rank, size, place_, recording_);
    };
    const GridShape& shape = place_.shape;
    if (name == "context") return group(context_part(shape, at), shape.context);
    if (name == "experts") return group(experts_part(shape, at), shape.experts);
    if (name == "same experts")
      return group(at.at(Axis::z) / shape.experts, shape.z / shape.experts);
    const auto axis = std::ranges::find(kAxes, name, [](Axis a) { return name_of(a); });
    AXONN_CHECK(axis != kAxes.end(), "split: a dry world has the groups of a grid only, got ",
                name);
    return group(at.at(*axis), place_.shape.extent(*axis));
  }

 private:
  Member place_;
  Recording* recording_;
};

}  // namespace

std::unique_ptr<Communicator> make_dry_world(const GridShape& shape, int rank,
                                             Recording* recording) {
  AXONN_CHECK(rank >= 0 && rank < shape.ranks(), "rank ", rank, " of grid ", to_string(shape),
              ": ranks are 0 to ", shape.ranks() - 1);
  return std::make_unique<DryWorld>("world", rank, shape.ranks(), DryWorld::Member{shape, rank},
                                    recording);
}

}  // namespace axonn
