// The order in which chunks go through layers: one's collective overlaps the others' compute.
#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/scheduling.h"

using namespace axonn;
using testing::ElementsAreArray;

namespace {

using Names = std::vector<std::string>;

/// Records the layers whose products run, in order.
class NotingBackend : public ForwardingBackend {
 public:
  NotingBackend() : ForwardingBackend(make_cpu_backend(1)) {}
  void mark(std::string_view layer) override { layer_ = layer; }
  Names take() { return std::exchange(products_, {}); }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    if (call.kind == OperationKind::product) products_.push_back(layer_);
    run();
  }

 private:
  std::string layer_;
  Names products_;
};

struct Orders {
  Names forward, backward;
};

constexpr int kChunks = 3;

/// The orders on rank 0 for two blocks of a norm, up and down: up1, down1, up2 and down2.
Orders orders_on(GridShape shape) {
  Orders orders;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    NotingBackend backend;
    Arena arena(backend.device());
    const Grid grid(world, shape);
    Context ctx(backend, arena, grid);
    ctx.own_scheduling().run.sequence_parallel = false;
    struct Block {
      Block(const std::string& i, const Grid& grid)
          : group("block " + i, grid),
            norm(group, "norm" + i, {.width = 8, .kind = Norm::Kind::rms}),
            up(group, "up" + i, {.in = 8, .out = 8, .bias = false}),
            down(group, "down" + i,
                 {.in = 8, .out = 8, .orientation = Orientation::transposed, .bias = false}) {}
      ParameterGroup group;
      Norm norm;
      Linear up, down;
    };
    Block first("1", grid), second("2", grid);
    Tape tape;
    ctx.tape = &tape;
    Var x;
    for (int i = 0; i < kChunks; ++i)
      x.push_back({ctx.zeros(4, 8 / shape.y, DType::f32),
                   {{Axis::z, Axis::data}, Axis::y},
                   {.sequences = 1, .positions = 4},
                   std::make_shared<Gradient>()});
    for (Block* block : {&first, &second}) {
      block->group.allocate(ctx);
      block->group.initialise(ctx, 1);
      block->group.begin_step(ctx);
      x = run_block(ctx, block->group, x, [block](const Context& in, const Var& inp) {
        return block->down(in, block->up(in, block->norm(in, inp)));
      });
    }
    for (const Chunk& chunk : x)
      chunk.gradient->add(ctx, ctx.zeros(4, chunk.value.cols(), DType::f32));
    const Names forward = backend.take();
    tape.backward();
    if (world.rank() == 0) orders = {forward, backend.take()};
  });
  return orders;
}

Names each_chunk(std::initializer_list<const char*> layers) {
  Names all;
  for (int i = 0; i < kChunks; ++i)
    for (const char* layer : layers) all.push_back(std::string(layer) + ".weight");
  return all;
}

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST(Order, EachChunkRunsFromOneSumToTheNextBeforeTheNextChunkDoes) {
  const auto [forward, backward] = orders_on({.x = 2});
  // Sums follow down in forward and up's gradient in backward; a gradient takes two products.
  EXPECT_THAT(forward,
              ElementsAreArray(each_chunk({"up1", "down1"}) + each_chunk({"up2", "down2"})));
  EXPECT_THAT(backward, ElementsAreArray(each_chunk({"down2", "down2", "up2", "up2"}) +
                                         each_chunk({"down1", "down1", "up1", "up1"})));
}

TEST(Order, ANormsSumsOverlapTheNextChunksProducts) {
  const auto [forward, backward] = orders_on({.y = 2});
  // Sums follow up in forward and down's gradient in backward. A chunk runs down1 before the
  // previous chunk runs up2, so that its norm's sums are ready in time.
  const Names between = {"down1.weight", "down1.weight", "up2.weight",
                         "down1.weight", "up2.weight",   "up2.weight"};
  EXPECT_THAT(forward, ElementsAreArray(each_chunk({"up1"}) + between + each_chunk({"down2"})));
  EXPECT_THAT(backward,
              ElementsAreArray(each_chunk({"down2", "down2"}) + each_chunk({"up2", "up2"}) +
                               each_chunk({"down1", "down1"}) + each_chunk({"up1", "up1"})));
}

TEST(Order, NoChunkIsABlockAheadIfWeightsAreGathered) {
  const auto [forward, backward] = orders_on({.y = 2, .z = 2});
  EXPECT_THAT(forward, ElementsAreArray(each_chunk({"up1"}) + each_chunk({"down1"}) +
                                        each_chunk({"up2"}) + each_chunk({"down2"})));
}
