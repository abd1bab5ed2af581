#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "axonn/base/clock.h"
#include "axonn/comm/launcher.h"
#include "axonn/comm/mpi/mpi.h"
#include "axonn/comm/threads/threads.h"

// Times every collective in f32 for several sizes and groups, beside its bound. For MPI processes
// that is the link: the bytes that a rank sends over its rate. For ranks as threads it is memory:
// the bytes that all ranks of a group read and write over the rate of copies by all ranks at once.
//
//   bench_comm_collectives RANKS                   ranks as threads
//   mpirun -np N bench_comm_collectives MBIT_S     MPI processes, each with a link of that rate
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

}  // namespace

int main(int argc, char** argv) {
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
