#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/mpi/mpi.h"
#include "axonn/ranks/comm/threads/threads.h"

// Times every collective in f32 for several sizes and groups, beside its bound. For MPI processes
// that is the link: the bytes that a rank sends over its rate. For ranks as threads it is memory:
// the bytes that all ranks of a group read and write over the rate of copies by all ranks at once.
//
//   bench_comm_collectives RANKS                   ranks as threads
//   mpirun -np N bench_comm_collectives MBIT_S     MPI processes, each with a link of that rate
//   mpirun -np N bench_comm_collectives methods [KIB [MBIT_S US US]]
//   mpirun -np N bench_comm_collectives checksums  without and with parallelism.verify_messages
//
// methods times the methods of collective_cost.h in turn, call by call, on the world, and
// times what the transport chooses. KIB is the largest size. The choice is made by default rates,
// or by those of hosts' links: MBIT_S, and latencies between hosts and inside them.
//
// The time is that of the slowest rank, and the median of several repetitions.

namespace {

using namespace axonn;

constexpr std::int64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};  // bytes of the whole
constexpr int kRepetitions = 5;

struct Case {
  const char* name;
  Work (*start)(Communicator& group, Buffer whole, Buffer piece);
  /// Bytes that a rank sends, for a whole buffer of `bytes` in a group of `size` ranks.
  double (*sent)(double bytes, double size);
  /// Bytes that all ranks of the group together read and write.
  double (*moved)(double bytes, double size);
};

const Case kCases[] = {
    {"all_reduce",
     [](Communicator& group, Buffer whole, Buffer) { return group.all_reduce(whole); },
     [](double bytes, double size) { return 2 * bytes * (size - 1) / size; },
     [](double bytes, double size) { return 2 * bytes * size; }},
    {"all_gather",
     [](Communicator& group, Buffer whole, Buffer piece) { return group.all_gather(whole, piece); },
     [](double bytes, double size) { return bytes * (size - 1) / size; },
     [](double bytes, double size) { return bytes * (1 + size); }},
    {"reduce_scatter",
     [](Communicator& group, Buffer whole, Buffer piece) {
       return group.reduce_scatter(piece, whole);
     },
     [](double bytes, double size) { return bytes * (size - 1) / size; },
     [](double bytes, double size) { return bytes * (1 + size); }},
    {"all_to_all",
     [](Communicator& group, Buffer whole, Buffer) { return group.all_to_all(whole, whole); },
     [](double bytes, double size) { return bytes * (size - 1) / size; },
     [](double bytes, double size) { return 4 * bytes * (size - 1); }},
    {"broadcast",
     [](Communicator& group, Buffer whole, Buffer) { return group.broadcast(whole, 0); },
     [](double bytes, double size) { return 2 * bytes * (size - 1) / size; },
     [](double bytes, double size) { return 2 * bytes * (size - 1); }}};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// The slowest rank's seconds, median over the repetitions.
double time(Communicator& world, const std::function<void()>& run) {
  std::vector<double> seconds;
  run();
  for (int i = 0; i < kRepetitions; ++i) {
    world.barrier();
    const double begin = now_seconds();
    run();
    double taken = now_seconds() - begin;
    world.all_reduce(buffer(std::span(&taken, 1)), "time", ReduceOp::max).wait();
    seconds.push_back(taken);
  }
  return median(seconds);
}

/// Bytes per second, read and written, by copies of all ranks at once.
double copy_rate(Communicator& world) {
  std::vector<char> from(32 << 20, 1), to(from.size());
  const double seconds = time(world, [&] { std::memcpy(to.data(), from.data(), to.size()); });
  return 2.0 * static_cast<double>(to.size()) * world.size() / seconds;
}

/// rate: bytes per second of a link, or 0 for ranks that share memory.
void measure(Communicator& world, double rate) {
  const bool linked = rate > 0;
  if (!linked) rate = copy_rate(world);
  if (world.rank() == 0)
    std::printf("%d ranks; bound: %s, %.3f GB/s\n%-15s%6s%12s%12s%10s%10s%8s\n", world.size(),
                linked ? "a rank's link" : "memory", rate * 1e-9, "collective", "group", "bytes",
                "time ms", "GB/s", "bound ms", "share");
  for (int size = 2; size <= world.size(); size *= 2) {
    if (world.size() % size != 0) continue;
    const auto group = world.split(world.rank() / size, "group");
    for (const Case& c : kCases) {
      for (const std::int64_t bytes : kSizes) {
        std::vector<float> values(bytes / sizeof(float), 1.f), part(values.size() / size, 1.f);
        const Buffer whole = buffer(std::span(values)), piece = buffer(std::span(part));
        const double seconds = time(world, [&] { c.start(*group, whole, piece).wait(); });
        const double all = static_cast<double>(bytes),
                     work = linked ? c.sent(all, size) : c.moved(all, size) * world.size() / size,
                     bound = work / rate;
        if (world.rank() == 0)
          std::printf("%-15s%6d%12ld%12.3f%10.3f%10.3f%7.0f%%\n", c.name, size,
                      static_cast<long>(bytes), seconds * 1e3, work / seconds * 1e-9, bound * 1e3,
                      100 * bound / seconds);
      }
    }
  }
}

constexpr std::int64_t kMethodSizes[] = {8 << 10,   32 << 10, 128 << 10,
                                         512 << 10, 2 << 20,  16 << 20};
constexpr int kRounds = 7, kMostCalls = 64;
/// Calls of at least this many bytes are timed alone, smaller ones as many as have these bytes.
constexpr std::int64_t kCallBytes = 1 << 20;
/// Of more bytes, rounds are not timed: they send too much.
constexpr std::int64_t kMostOfRounds = 128 << 10;

/// The methods of one collective in turn, in each of the repetitions; the slowest rank's seconds
/// count. One rank may begin a call before another has ended the one before, as in training.
void compare_methods(Communicator& world, const CollectiveRates& rates, const Case& c,
                     std::int64_t bytes) {
  std::vector<float> values(bytes / sizeof(float), 1.f), part(values.size() / world.size());
  const Buffer whole = buffer(std::span(values)), piece = buffer(std::span(part));
  const auto calls = static_cast<int>(std::clamp<std::int64_t>(kCallBytes / bytes, 1, kMostCalls));
  std::vector<CollectivePolicy> policies = {{CollectiveMethod::flat},
                                            {CollectiveMethod::two_level},
                                            {{}, rates},
                                            {CollectiveMethod::recursive}};
  if (bytes > kMostOfRounds) policies.pop_back();
  std::vector<std::vector<double>> seconds(4, {0});
  for (std::size_t i = 0; i < policies.size(); ++i) seconds[i].clear();
  for (int round = 0; round < (bytes > kCallBytes ? kRounds / 2 : kRounds); ++round)
    for (std::size_t i = 0; i < policies.size(); ++i) {
      world.set_policy(policies[i]);
      c.start(world, whole, piece).wait();
      world.barrier();
      const double begin = now_seconds();
      for (int call = 0; call < calls; ++call) c.start(world, whole, piece).wait();
      double taken = (now_seconds() - begin) / calls;
      world.all_reduce(buffer(std::span(&taken, 1)), "time", ReduceOp::max).wait();
      seconds[i].push_back(taken);
    }
  if (world.rank() > 0) return;
  const double flat = median(seconds[0]), two = median(seconds[1]), chosen = median(seconds[2]),
               rounds = median(seconds[3]);
  std::printf("%-15s%10ld%10.3f%10.3f%10.3f%10.3f%10.2f%10.2f\n", c.name, static_cast<long>(bytes),
              flat * 1e3, two * 1e3, rounds * 1e3, chosen * 1e3, flat / two, flat / chosen);
  std::fflush(stdout);
}

void compare_methods(Communicator& world, const CollectiveRates& rates, std::int64_t most_bytes) {
  if (world.rank() == 0)
    std::printf("%d ranks; ms\n%-15s%10s%10s%10s%10s%10s%10s%10s\n", world.size(), "collective",
                "bytes", "flat", "two-level", "rounds", "auto", "flat/two", "flat/auto");
  for (const Case& c : {kCases[0], kCases[1], kCases[2]})
    for (const std::int64_t bytes : kMethodSizes)
      if (bytes <= most_bytes) compare_methods(world, rates, c, bytes);
}

/// Each collective without and with checksums of its messages in turn; the slowest rank's seconds.
void compare_checksums(Communicator& world) {
  if (world.rank() == 0)
    std::printf("%d ranks; ms\n%-15s%10s%10s%10s%8s\n", world.size(), "collective", "bytes",
                "without", "with", "ratio");
  for (const Case& c : kCases)
    for (const std::int64_t bytes : kSizes) {
      std::vector<float> values(bytes / sizeof(float), 1.f), part(values.size() / world.size());
      const Buffer whole = buffer(std::span(values)), piece = buffer(std::span(part));
      std::vector<double> seconds[2], ratios;
      for (int round = 0; round < 3 * kRounds; ++round) {
        for (const bool checksums : {false, true}) {
          world.set_policy({.checksums = checksums});
          seconds[checksums].push_back(time(world, [&] { c.start(world, whole, piece).wait(); }));
        }
        ratios.push_back(seconds[1].back() / seconds[0].back());
      }
      if (world.rank() == 0)
        std::printf("%-15s%10ld%10.3f%10.3f%8.3f\n", c.name, static_cast<long>(bytes),
                    median(seconds[0]) * 1e3, median(seconds[1]) * 1e3, median(ratios));
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "methods" && under_launcher()) {
    CollectiveRates rates;
    if (argc > 5) {
      rates.across = {1e-6 * std::atof(argv[4]), std::atof(argv[3]) * 1e6 / 8};
      rates.inside.latency_s = 1e-6 * std::atof(argv[5]);
    }
    const std::int64_t most = argc > 2 ? std::atol(argv[2]) << 10 : 16 << 20;
    run_mpi([&](Communicator& world) { compare_methods(world, rates, most); });
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "checksums" && under_launcher()) {
    run_mpi(compare_checksums);
    return 0;
  }
  const double number = argc == 2 ? std::atof(argv[1]) : 0;
  if (number <= 0) {
    std::fprintf(
        stderr,
        "usage: bench_comm_collectives RANKS, or mpirun -np N bench_comm_collectives MBIT_S\n");
    return 2;
  }
  if (under_launcher())
    run_mpi([&](Communicator& world) { measure(world, number * 1e6 / 8); });
  else
    run_ranks(static_cast<int>(number), [](Communicator& world) { measure(world, 0); });
  return 0;
}
