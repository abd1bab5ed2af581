// Times loading a Hugging Face folder from a disk with a cold cache, compared with reading it once.
//
//   bench_loading FOLDER [GB] [ROUNDS] [RANKS]
//
// Writes a Llama of GB (8) gigabytes of bf16 with random weights to FOLDER, unless the folder
// exists. Then, ROUNDS (3) times in turn: drops the files from the page cache and reads them from
// front to back, on one thread and on RANKS (8) threads with equal shares; drops them and loads the
// model in bf16 on a grid with z = RANKS, with threads as ranks. Finally prints the ratio of the
// median loading time to that of the faster way of reading.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/loaded_model.h"

#include "tests/support/large_model.h"

using namespace axonn;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

/// Drops the files from the page cache. Only clean pages are dropped; the written ones are synced.
void drop_from_cache(const std::string& folder) {
  for (const std::string& path : files_of(folder)) {
    const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    AXONN_CHECK(file.get() >= 0 && ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) == 0,
                "cannot drop ", path, " from the cache");
  }
}

/// Seconds to read every byte in pieces of 4 MiB; thread i of n reads share i of n of each file.
double read_seconds(const std::string& folder, int threads) {
  drop_from_cache(folder);
  const double begin = now_seconds();
  std::vector<std::jthread> readers;
  for (int i = 0; i < threads; ++i)
    readers.emplace_back([&, i] {
      std::vector<std::byte> piece(4 << 20);
      for (const std::string& path : files_of(folder)) {
        const InputFile file(path);
        const std::int64_t end = file.bytes() * (i + 1) / threads;
        for (std::int64_t at = file.bytes() * i / threads; at < end;) {
          const auto n = std::min<std::int64_t>(std::ssize(piece), end - at);
          file.read(at, std::span(piece).first(static_cast<std::size_t>(n)));
          at += n;
        }
      }
    });
  readers.clear();
  return now_seconds() - begin;
}

double load_seconds(const std::string& folder, int ranks) {
  Config config;
  config.model = resolved(read_hugging_face_config(folder), 0, 0);
  config.model.path = folder;
  config.training.dtype = DType::bf16;
  config.parallelism.z = ranks;
  double seconds = 0;
  run_ranks(ranks, [&](Communicator& world) {
    LoadedModel model(prepared_model(config), world, make_cpu_backend(1), {.trainable = false});
    // As before plain reading: so the pages that the drop frees are the next to be filled.
    if (world.rank() == 0) drop_from_cache(folder);
    world.barrier("begin");
    const double begin = now_seconds();
    model.initialise();
    world.barrier("end");
    if (world.rank() == 0) seconds = now_seconds() - begin;
  });
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(const std::string& folder, double gigabytes, int rounds, int ranks) {
  if (!fs::exists(folder))
    testing_support::write_large_model(
        folder, testing_support::large_model(static_cast<std::int64_t>(gigabytes * 1e9)));
  const SafetensorsFolder opened(folder);
  double bytes = 0;
  for (const auto& [name, tensor] : opened.tensors())
    bytes += static_cast<double>(tensor.entry->bytes());
  std::vector<double> one, many, load;
  for (int round = 0; round < rounds; ++round) {
    one.push_back(read_seconds(folder, 1));
    load.push_back(load_seconds(folder, ranks));
    many.push_back(read_seconds(folder, ranks));
    std::printf("read, 1 thread %.2f s   %d threads %.2f s   load %.2f s\n", one.back(), ranks,
                many.back(), load.back());
    std::fflush(stdout);
  }
  const double best = std::min(median(one), median(many));
  std::printf("%.2f GB: read at %.2f GB/s, loaded at %.2f GB/s: loading takes %.2f times as long\n",
              bytes * 1e-9, bytes * 1e-9 / best, bytes * 1e-9 / median(load), median(load) / best);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_loading FOLDER [GB] [ROUNDS] [RANKS]\n";
    return 2;
  }
  const auto number = [&](int i, double otherwise) {
    return argc > i ? std::stod(argv[i]) : otherwise;
  };
  try {
    run(argv[1], number(2, 8), static_cast<int>(number(3, 3)), static_cast<int>(number(4, 8)));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
