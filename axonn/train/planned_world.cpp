#include "axonn/train/planned_world.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

namespace {

class PlannedWorld final : public Communicator {
 public:
  PlannedWorld(const GridShape& shape, int world_rank, int rank, int size)
      : shape_(shape), world_rank_(world_rank), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Work all_reduce(Buffer, std::string_view, ReduceOp) override { nobody("all_reduce"); }
  Work all_gather(Buffer, Buffer, std::string_view) override { nobody("all_gather"); }
  Work reduce_scatter(Buffer, Buffer, std::string_view) override { nobody("reduce_scatter"); }
  Work broadcast(Buffer, int, std::string_view) override { nobody("broadcast"); }
  Work all_to_all(Buffer, Buffer, std::string_view) override { nobody("all_to_all"); }
  Work send(Buffer, int, std::string_view) override { nobody("send"); }
  Work recv(Buffer, int, std::string_view) override { nobody("recv"); }
  void barrier(std::string_view) override { nobody("barrier"); }

  std::unique_ptr<Communicator> split(int, std::string name) override {
    const auto axis = std::ranges::find(kAxes, name, [](Axis a) { return name_of(a); });
    AXONN_CHECK(axis != kAxes.end(), "split: a planned world has groups along the axes alone, not ",
                name);
    return std::make_unique<PlannedWorld>(
        shape_, world_rank_, coords_of(shape_, world_rank_).at(*axis), shape_.extent(*axis));
  }

  void abort(const std::string&) noexcept override {}
  const CommStats& stats() const override { return stats_; }
  void set_trace(Trace*) override {}

 private:
  [[noreturn]] void nobody(const char* operation) const {
    fail(Where::here(), operation, ": rank ", world_rank_, " of grid ", to_string(shape_),
         " is only planned; there are no other ranks to talk to");
  }

  GridShape shape_;
  int world_rank_, rank_, size_;
  CommStats stats_;
};

}  // namespace

std::unique_ptr<Communicator> make_planned_world(const GridShape& shape, int rank) {
  AXONN_CHECK(rank >= 0 && rank < shape.ranks(), "rank ", rank, " of grid ", to_string(shape),
              ": ranks are 0 to ", shape.ranks() - 1);
  return std::make_unique<PlannedWorld>(shape, rank, rank, shape.ranks());
}

}  // namespace axonn
