// A program that ranks under mpirun run: its argument names what they do. Without one, they check
// the transport and exit with 1 if anything was wrong.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/comm/grid.h"
#include "axonn/comm/mpi.h"

#include "tests/comm/collectives.h"

using namespace axonn;

namespace {

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void sum(Communicator& comm, std::int64_t count, std::string_view label) {
  std::vector<float> x(count, 1.f);
  comm.all_reduce(buffer(std::span<float>(x)), label).wait();
}

void check(Communicator& world) {
  check_transport(world);
  check_many_in_flight(world, 100);
  const Grid grid(world, {world.size(), 1, 1, 1});
  for (int i = 0; i < 100; ++i) {  // more in flight than a group has slots of tags
    std::vector<std::vector<float>> data(50, std::vector<float>(100, 1.f));
    std::vector<Work> works;
    for (auto& x : data)
      works.push_back(grid.along(Axis::x).all_reduce(buffer(std::span<float>(x))));
    for (Work& work : works) work.wait();
    for (const auto& x : data) EXPECT_EQ(x[99], world.size());
  }
}

void hash(Communicator& world) {
  const std::uint64_t value = hash_of_sums(world);
  if (world.rank() == 0) std::printf("hash %llu\n", static_cast<unsigned long long>(value));
}

void large(Communicator& world) {  // more than one message's bytes, and than an int's
  const std::int64_t count = (std::int64_t{1} << 31) + 5;
  std::vector<std::uint8_t> x(count, static_cast<std::uint8_t>(world.rank() + 1));
  world.broadcast(buffer(std::span<std::uint8_t>(x)), 1, "large").wait();
  for (std::int64_t i : {std::int64_t{0}, count / 2, count - 1}) EXPECT_EQ(x[i], 2);
}

void throws(Communicator& world) {
  if (world.rank() == 2) throw Error("lost the way");
  sum(world, 8, "block 1 mlp");
}

void all_throw(Communicator&) { refuse("no such key"); }

void aborts(Communicator& world) {
  if (world.rank() == 1) return world.abort("enough of this");
  sum(world, 8, "block 1 mlp");
}

/// Says who it is, then sums for ever.
void for_ever(Communicator& world) {
  std::printf("pid %d %d\n", world.rank(), static_cast<int>(getpid()));
  std::fflush(stdout);
  for (;;) {
    sum(world, 1000, "block 3 qkv");
    sleep_seconds(0.01);
  }
}

void is_missing(Communicator& world) {
  const auto pair = world.split(world.rank() / 2, "pair");
  sum(*pair, 8, "block 1 qkv");
  if (world.rank() == 1) sleep_seconds(60);
  sum(world, 8, "block 2 mlp");
}

void returns_early(Communicator& world) {
  sum(world, 8, "block 1 qkv");
  if (world.rank() != 3) sum(world, 8, "block 2 mlp");
}

void differs(Communicator& world) { sum(world, world.rank() == 1 ? 5000 : 9000, "block 4 mlp"); }

void differs_in_kind(Communicator& world) {
  if (world.rank() == 1) return world.barrier("step");
  sum(world, 8, "block 4 mlp");
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string name = argc > 1 ? argv[1] : "check";
  const std::map<std::string, void (*)(Communicator&)> bodies = {
      {"check", check},
      {"hash", hash},
      {"large", large},
      {"throws", throws},
      {"all_throw", all_throw},
      {"aborts", aborts},
      {"for_ever", for_ever},
      {"is_missing", is_missing},
      {"returns_early", returns_early},
      {"differs", differs},
      {"differs_in_kind", differs_in_kind}};
  if (!under_launcher()) {
    std::fprintf(stderr, "run this under mpirun\n");
    return 2;
  }
  run_mpi(bodies.at(name), {.timeout_seconds = argc > 2 ? std::stod(argv[2]) : 120});
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}
