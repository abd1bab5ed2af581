// Programs with races between the threads of emulated GPUs, and their correct forms, for
// ThreadSanitizer:
//
//   races NAME
//
// runs one of them, 30 times with other random orders. Exits with 0 if the sanitizer finds no race.
// races_test.sh runs all.
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "axonn/compute/ops/gpu/reduce_block.h"

#include "tests/emulated_gpu/platform.h"
#include "tests/emulated_gpu/warp_cpu.cuh"

using namespace axonn::cuda;

namespace {

constexpr int kThreads = 128;

/// Of the block.
int thread() { return static_cast<int>(threadIdx.x); }
int block() { return static_cast<int>(blockIdx.x); }

/// Each thread adds its neighbour's number, three times.
template <bool first_barrier, bool second_barrier>
__global__ void neighbours(float* out) {
  AXONN_SHARED(values, float[kThreads]);
  float mine = static_cast<float>(thread() + block());
  for (int i = 0; i < 3; ++i) {
    values[thread()] = mine;
    if (first_barrier) __syncthreads();
    mine += values[(thread() + 1) % kThreads];
    if (second_barrier) __syncthreads();  // before values is written again
  }
  out[block() * kThreads + thread()] = mine;
}

/// A block, in the form that reduce_block() takes.
struct RacingBlock {
  int thread() const { return ::thread(); }
  int threads() const { return kThreads; }
  void sync() const { __syncthreads(); }
  float shuffle_xor(float x, int mask) const { return axonn::cuda::shuffle_xor(x, mask); }
};

/// Sums that use the same shared memory.
__global__ void sums(float* out) {
  AXONN_SHARED(parts, float[kThreads / kWarp]);
  float x = static_cast<float>(thread());
  for (int i = 0; i < 3; ++i)
    x = reduce_block<kWarp>(RacingBlock{}, static_cast<float*>(parts), x,
                            [](float a, float b) { return a + b; });
  out[block() * kThreads + thread()] = x;
}

/// Shuffles do not order memory.
__global__ void after_shuffle(float* out) {
  AXONN_SHARED(values, float[kThreads]);
  values[thread()] = shuffle_xor(1.0f, 1);
  out[block() * kThreads + thread()] = values[thread() ^ 1];
}

/// All blocks write to one place.
__global__ void one_total(float* out) {
  __syncthreads();
  if (thread() == 0) out[0] = 1;
}

/// One thread of one block writes what all others read.
__global__ void first_block(float* out) {
  if (block() == 0 && thread() == 0) out[0] = 1;
  __syncthreads();
  out[1 + block() * kThreads + thread()] = out[0];
}

/// All threads of a block write to one place.
__global__ void all_threads(float* out) { out[block()] = 1; }

__global__ void write(float* out) { out[block() * kThreads + thread()] = 1; }
__global__ void add(float* out) { out[block() * kThreads + thread()] += 1; }

[[gnu::noinline]] void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) values[(i * 37 + thread()) % count] = static_cast<float>(i);
}

/// Each thread uses much of its stack, which others that have ended have used before.
__global__ void stacks(float* out) {
  float values[256];
  fill(values, 256);
  float sum = 0;
  for (int i = 0; i < 256; ++i) sum += values[i];
  out[block() * kThreads + thread()] = sum + values[thread()];
}

/// Two streams and memory for a thread of each of 8 blocks.
struct Streams {
  static constexpr int kBlocks = 8;
  cudaStream_t a = nullptr, b = nullptr;
  float* memory = nullptr;

  Streams() {
    cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, 0);
    cudaMalloc(reinterpret_cast<void**>(&memory), (kBlocks * kThreads + 1) * sizeof(float));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    cudaStreamSynchronize(a);
    cudaStreamSynchronize(b);
    cudaFree(memory);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  void run(cudaStream_t stream, void (*kernel)(float*)) {
    void* args[] = {&memory};
    if (cudaLaunchKernel(kernel, kBlocks, kThreads, args, 0, stream) != cudaSuccess)
      emulated_gpu::violation("a launch fails");
  }
  /// b waits for what a has to do.
  void order() {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event);
    cudaEventDestroy(event);
  }
};

void run_once(const std::string& name) {
  const std::map<std::string, void (*)(float*)> kernels = {
      {"correct_barriers", neighbours<true, true>},
      {"no_first_barrier", neighbours<false, true>},
      {"no_second_barrier", neighbours<true, false>},
      {"after_shuffle", after_shuffle},
      {"one_total", one_total},
      {"first_block", first_block},
      {"all_threads", all_threads},
      {"correct_stacks", stacks},
      {"correct_sums", sums}};
  Streams gpu;
  if (const auto found = kernels.find(name); found != kernels.end()) {
    gpu.run(gpu.a, found->second);
    return;
  }
  const bool correct = name == "correct_streams";
  if (name != "no_event" && !correct) emulated_gpu::violation("no program " + name);
  gpu.run(gpu.a, write);
  gpu.run(gpu.a, add);
  if (correct) gpu.order();
  gpu.run(gpu.b, add);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) emulated_gpu::violation("usage: races NAME");
  for (int i = 0; i < 30; ++i) run_once(arguments[1]);
  std::printf("%s ran\n", arguments[1]);
}
