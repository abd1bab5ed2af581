// A test program to run under mpirun: [BODY [TIMEOUT [DELAY [METHOD [HOSTS]]]]]. BODY names the
// body that all ranks run; by default they check the transport and exit with 1 if a check fails.
// METHOD is that of collectives, or "auto"; with "+sums" messages have checksums. HOSTS are
// pretended: one letter for each rank, such as "aabb".
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/mpi/mpi.h"

#include "tests/ranks/comm/collectives.h"

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

/// Each rank calls three groups in its own order. Large and small sums alternate, and there are
/// more of each than may be in flight.
void own_order(Communicator& world) {
  const auto pairs = world.split(world.rank() / 2, "pairs");
  const auto odd_even = world.split(world.rank() % 2, "odd and even");
  const std::vector<Communicator*> groups = {&world, pairs.get(), odd_even.get()};
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<float>> data;
    for (int i = 0; i < 3 * 40; ++i) data.emplace_back(i % 2 ? 30'000 : 10, 1.f);
    std::vector<Work> works;
    for (int g = 0; g < 3; ++g)
      for (int i = 0; i < 40; ++i) {
        const int at = (world.rank() + round + g) % 3;
        works.push_back(groups[at]->all_reduce(buffer(std::span<float>(data[40 * at + i]))));
      }
    for (Work& work : works) work.wait();
    for (int at = 0; at < 3; ++at)
      for (int i = 0; i < 40; ++i) {
        const std::vector<float>& sums = data[40 * at + i];
        EXPECT_EQ(std::ranges::count(sums, groups[at]->size()), std::ssize(sums))
            << "group " << at << ", sum " << i;
      }
  }
}

void hash(Communicator& world) {
  const std::uint64_t value = hash_of_sums(world);
  if (world.rank() == 0) std::printf("hash %llu\n", static_cast<unsigned long long>(value));
}

void large(Communicator& world) {  // more bytes than one message has, and than an int can count
  const std::int64_t count = (std::int64_t{1} << 31) + 5;
  std::vector<std::uint8_t> x(count, static_cast<std::uint8_t>(world.rank() + 1));
  world.broadcast(buffer(std::span<std::uint8_t>(x)), 1, "large").wait();
  for (std::int64_t i : {std::int64_t{0}, count / 2, count - 1}) EXPECT_EQ(x[i], 2);
}

void throws(Communicator& world) {
  if (world.rank() == 2) throw Error("lost the way");
  sum(world, 8, "block 1 mlp");
}

/// Rank 2 fails, and rank 0 needs two seconds to unwind.
void rank_0_unwinds(Communicator& world) {
  const struct Publication {
    explicit Publication(int of) : rank(of) {}
    ~Publication() {
      if (rank != 0) return;
      sleep_seconds(2);
      std::printf("published\n");
      std::fflush(stdout);
    }
    int rank;
  } publication(world.rank());
  throws(world);
}

void rank_0_hangs(Communicator& world) {
  while (world.rank() == 0) sleep_seconds(1);
  throws(world);
}

/// Every rank hears of the progress that the others note.
void notes(Communicator& world) {
  for (int i = 0; i < world.rank() + 1; ++i) world.note_progress();
  while (world.noted_progress() < 1 + 2 + 3 + 4) sleep_seconds(0.01);
  world.barrier("heard");
}

void all_throw(Communicator&) { refuse("no such key"); }

void aborts(Communicator& world) {
  if (world.rank() == 1) return world.abort("enough of this");
  sum(world, 8, "block 1 mlp");
}

void print_pid(const Communicator& world) {
  std::printf("pid %d %d\n", world.rank(), static_cast<int>(getpid()));
  std::fflush(stdout);
}

void for_ever(Communicator& world) {
  print_pid(world);
  for (;;) {
    sum(world, 1000, "block 3 qkv");
    sleep_seconds(0.01);
  }
}

volatile std::sig_atomic_t was_signalled = 0;

/// The others wait for rank 1, which waits for SIGUSR1.
void awaits_signal(Communicator& world) {
  std::signal(SIGUSR1, [](int) { was_signalled = 1; });
  print_pid(world);
  while (world.rank() == 1 && was_signalled == 0) sleep_seconds(0.01);
  sum(world, 8, "block 1 mlp");
}

void is_missing(Communicator& world) {
  const auto pair = world.split(world.rank() / 2, "pair");
  sum(*pair, 8, "block 1 qkv");
  if (world.rank() == 1) sleep_seconds(60);
  sum(world, 8, "block 2 mlp");
}

/// On the grid 2,2: rank 2 hangs, and the others wait for it or for each other.
void is_missing_far_away(Communicator& world) {
  const auto x = world.split(world.rank() / 2, "x"), y = world.split(world.rank() % 2, "y");
  if (world.rank() == 2) sleep_seconds(60);
  if (world.rank() >= 2) sum(*x, 8, "qkv");
  if (world.rank() % 2 == 1) sum(*y, 8, "mlp");
  if (world.rank() < 2) sum(*x, 8, "head");
}

void wait_for_each_other(Communicator& world) {
  const auto pair = world.split(world.rank() / 2, "pair");
  (world.rank() == 0 ? world : *pair).barrier("first");
  (world.rank() == 0 ? *pair : world).barrier("second");
}

/// Rank 0 works for three seconds, alone.
void works_alone(Communicator& world) {
  for (int i = 0; i < 30 && world.rank() == 0; ++i) {
    sleep_seconds(0.1);
    world.note_progress();
  }
  world.barrier("data");
}

void returns_late(Communicator& world) {
  if (world.rank() == 1) sleep_seconds(3);
}

void returns_early(Communicator& world) {
  sum(world, 8, "block 1 qkv");
  if (world.rank() != 3) sum(world, 8, "block 2 mlp");
}

/// Bytes of memory that this process uses.
std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// Rank 0 makes calls for which rank 1 comes late. What it sends at once travels before its part of
/// the barrier, on the same connection.
void runs_ahead(Communicator& world) {
  constexpr std::int64_t kBytes = 64 << 20, kCalls = 100, kEach = 32 << 10;
  const auto pair = world.split(0, "pair");
  const bool late = world.rank() == 1;
  std::vector<std::uint8_t> whole(world.size() * kBytes, late), part(kBytes, late + 1);
  std::vector<std::uint8_t> small(kCalls * kEach, late ? 0 : 3), texts = small;
  const auto each = [&](std::vector<std::uint8_t>& all, std::int64_t i) {
    return buffer(std::span(all).subspan(i * kEach, kEach));
  };
  std::vector<Work> works;
  const auto call = [&] {
    works.push_back(pair->all_gather(buffer(std::span(whole)), buffer(std::span(part)), "large"));
    for (std::int64_t i = 0; i < kCalls; ++i)
      works.push_back(pair->broadcast(each(small, i), 0, "small"));
    for (std::int64_t i = 0; i < kCalls; ++i)
      works.push_back(late ? pair->recv(each(texts, i), 0) : pair->send(each(texts, i), 1));
  };
  world.barrier("connect");
  const std::int64_t before = resident_bytes();
  if (!late) call();
  world.barrier("sent");
  if (late)
    EXPECT_LT(resident_bytes() - before, 8 << 20) << "bytes of messages that wait for this rank";
  else
    EXPECT_EQ(std::ranges::count_if(works, [](Work& work) { return work.done(); }), 0)
        << "calls done without the other rank";
  world.barrier("checked");
  if (late) call();
  for (Work& work : works) work.wait();
  EXPECT_EQ(std::ranges::count(whole, 1), kBytes);
  EXPECT_EQ(std::ranges::count(whole, 2), kBytes);
  EXPECT_EQ(std::ranges::count(small, 3), std::ssize(small));
  EXPECT_EQ(std::ranges::count(texts, 3), std::ssize(texts));
}

void differs(Communicator& world) { sum(world, world.rank() == 1 ? 5000 : 9000, "block 4 mlp"); }

void differs_in_method(Communicator& world) {
  world.set_policy({world.rank() % 2 == 1 ? CollectiveMethod::two_level : CollectiveMethod::flat});
  sum(world, 9000, "block 4 mlp");
}

/// Bytes that this process's host has sent to others (scripts/emulated-hosts).
double bytes_sent_by_host() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string name; devices >> name;) {
    if (name != "net0:") continue;
    std::array<double, 9> columns{};  // eight about what was received, then the bytes sent
    for (double& column : columns) devices >> column;
    return columns.back();
  }
  return 0;
}

/// Compares the bytes that leave a host with the formulas of docs/communication.md.
void leaving_bytes(Communicator& world) {
  const double hosts = 3, ranks = 2, part = 1 << 20;
  std::vector<float> whole(world.size() * (1 << 18)), piece(1 << 18);
  const Buffer all = buffer(std::span(whole)), mine = buffer(std::span(piece));
  for (const auto method : {CollectiveMethod::flat, CollectiveMethod::two_level})
    for (const bool gathers : {true, false}) {
      world.set_policy({method});
      world.barrier();
      const double before = bytes_sent_by_host();
      world.barrier();
      if (gathers) world.all_gather(all, mine).wait();
      if (!gathers) world.reduce_scatter(mine, all).wait();
      world.barrier();
      const double sent = bytes_sent_by_host() - before,
                   to = method == CollectiveMethod::flat ? ranks * (hosts - 1) : hosts - 1;
      // Headers of packets and the barriers add to the data, which another rank may still send.
      EXPECT_GT(sent, ranks * to * part) << "gathers: " << gathers;
      EXPECT_LT(sent, 1.2 * ranks * to * part) << "gathers: " << gathers;
      world.barrier();
    }
}

/// Rank 1 gives rank 3 another count than it expects. The first parts of both messages are equally
/// long.
void differs_in_counts(Communicator& world) {
  const std::int64_t n = 1 << 20;
  std::vector<std::int64_t> to(world.size(), n), from = to;
  if (world.rank() == 1) to[3] += n;
  std::vector<float> inp(std::reduce(to.begin(), to.end())), out(world.size() * n);
  world.all_to_all(buffer(std::span(out)), buffer(std::span(inp)), {to, from}, "block 4 rows")
      .wait();
}

/// Rank 2 fails while large messages are on their way, and the others free their buffers. An
/// exchange that it takes part in is begun, another one is not.
void throws_amid_large_messages(Communicator& world) {
  const std::int64_t n = 16 << 20;
  std::vector<float> mine(n), others(n);
  const auto pair = world.split(world.rank() % 2, "pair");
  Work begun = world.all_reduce(buffer(std::span(mine)), "block 1 mlp");
  if (world.rank() == 2) {
    sleep_seconds(0.02);
    throw Error("lost the way");
  }
  pair->all_reduce(buffer(std::span(others)), "block 2 mlp").wait();
  begun.wait();
}

void differs_in_kind(Communicator& world) {
  if (world.rank() == 1) return world.barrier("step");
  sum(world, 8, "block 4 mlp");
}

void differs_in_name(Communicator& world) {
  world.split(world.rank() / 2, world.rank() == 3 ? "rows" : "columns");
}

/// Sums, of which rank 1 gets a message with a flipped bit: see flip_in_one().
void altered(Communicator& world) {
  for (int i = 0; i < 50; ++i) sum(world, i % 2 == 0 ? 300'000 : 100, "block 3");
}

/// Flips a bit of the 40th message that arrives at rank 1.
void flip_in_one(std::span<char> bytes) {
  static int arrived = 0;
  if (launched_rank() == 1 && ++arrived == 40) bytes[bytes.size() / 2] ^= 4;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string name = argc > 1 ? argv[1] : "check";
  const std::map<std::string, void (*)(Communicator&)> bodies = {
      {"check", check},
      {"own_order", own_order},
      {"hash", hash},
      {"large", large},
      {"throws", throws},
      {"throws_amid_large_messages", throws_amid_large_messages},
      {"rank_0_unwinds", rank_0_unwinds},
      {"rank_0_hangs", rank_0_hangs},
      {"notes", notes},
      {"all_throw", all_throw},
      {"aborts", aborts},
      {"for_ever", for_ever},
      {"awaits_signal", awaits_signal},
      {"is_missing", is_missing},
      {"is_missing_far_away", is_missing_far_away},
      {"wait_for_each_other", wait_for_each_other},
      {"works_alone", works_alone},
      {"returns_late", returns_late},
      {"returns_early", returns_early},
      {"runs_ahead", runs_ahead},
      {"differs", differs},
      {"differs_in_counts", differs_in_counts},
      {"differs_in_kind", differs_in_kind},
      {"differs_in_method", differs_in_method},
      {"leaving_bytes", leaving_bytes},
      {"differs_in_name", differs_in_name},
      {"altered", altered}};
  if (!under_launcher()) {
    std::fprintf(stderr, "run this under mpirun\n");
    return 2;
  }
  const std::map<std::string, CollectivePolicy> policies = {
      {"auto", {}},
      {"flat", {CollectiveMethod::flat}},
      {"two-level", {CollectiveMethod::two_level}},
      {"recursive", {CollectiveMethod::recursive}}};
  MpiOptions options{.timeout_seconds = argc > 2 ? std::stod(argv[2]) : 120,
                     .max_delay_us = argc > 3 ? std::stoi(argv[3]) : 0};
  if (name == "altered") options.on_arrival = flip_in_one;
  std::string method = argc > 4 ? argv[4] : "auto";
  const bool sums = method.ends_with("+sums");
  if (sums) method.resize(method.size() - 5);
  CollectivePolicy policy = policies.at(method);
  policy.checksums = sums;
  if (argc > 5) options.host_of = [&](int rank) { return std::string(1, argv[5][rank]); };
  const auto run = [&, body = bodies.at(name)](Communicator& world) {
    world.set_policy(policy);
    body(world);
  };
  run_mpi(run, options);
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}
