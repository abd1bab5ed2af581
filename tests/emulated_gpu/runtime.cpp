#include "tests/emulated_gpu/runtime.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

extern "C" {
// ThreadSanitizer's; null in other builds.
__attribute__((weak)) void* __tsan_get_current_fiber(void);
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char* file, int line);  // and writes
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char* file, int line);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace emulated_gpu {

namespace {

struct Lock {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
};
Lock& the_lock() {
  static Lock& lock = *new Lock;  // used by threads that end after main()
  return lock;
}
// Made before there are threads: ThreadSanitizer would not see that others wait for its making.
[[maybe_unused]] const Lock& made_at_the_start = the_lock();
thread_local int depth = 0;

/// Countdowns of calls that are to fail, by function.
std::multimap<std::string, int>& failures() {
  static auto& failures = *[] {
    auto* of_environment = new std::multimap<std::string, int>;
    const char* text = std::getenv("AXONN_EMULATED_FAIL");
    for (std::string rest = text ? text : ""; !rest.empty();) {
      const std::string one = rest.substr(0, rest.find(','));
      rest.erase(0, one.size() + 1);
      const std::size_t colon = one.find(':');
      const int nth = colon == one.npos ? 0 : std::atoi(one.c_str() + colon + 1);
      if (nth < 1) violation("AXONN_EMULATED_FAIL: \"" + one + "\" is not FUNCTION:NUMBER");
      of_environment->emplace(one.substr(0, colon), nth);
    }
    return of_environment;
  }();
  return failures;
}

std::map<std::string, std::int64_t>& counts() {
  static auto& counts = *new std::map<std::string, std::int64_t>;
  return counts;
}

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr std::pair<cudaError_t, const char*> kErrorNames[] = {
    {cudaSuccess, "cudaSuccess"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
    {cudaErrorNoDevice, "cudaErrorNoDevice"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {cudaErrorNotReady, "cudaErrorNotReady"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent"},
    {cudaErrorUnknown, "cudaErrorUnknown"},
};

}  // namespace

void violation(const std::string& message) {
  std::fprintf(stderr, "emulated GPU: %s\n", message.c_str());
  std::fflush(stderr);
  std::abort();
}

Machine& machine() {
  static Machine& machine = *[] {
    auto* made = new Machine;
    made->used.resize(static_cast<std::size_t>(std::max(0, device_count())));
    return made;
  }();
  return machine;
}

long long setting(const char* name, long long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

int device_count() {
  static const int count = static_cast<int>(setting("AXONN_EMULATED_GPUS", 8));
  return count;
}

std::size_t device_bytes() {
  static const auto bytes = static_cast<std::size_t>(setting("AXONN_EMULATED_BYTES", 1ll << 32));
  return bytes;
}

int current_device() { return device_of_thread; }

void lock() {
  if (depth++ == 0) the_lock().mutex.lock();
}

void unlock() {
  if (--depth == 0) the_lock().mutex.unlock();
}

int lock_depth() { return depth; }

void progressed() {
  if (the_lock().waiting > 0) the_lock().changed.notify_all();
}

void wait_for_progress(int milliseconds) {
  const int held = std::exchange(depth, 0);
  std::unique_lock taken(the_lock().mutex, std::adopt_lock);
  ++the_lock().waiting;
  the_lock().changed.wait_for(taken, std::chrono::milliseconds(milliseconds));
  --the_lock().waiting;
  taken.release();
  depth = held;
}

std::mt19937_64& random_numbers() {
  static std::mt19937_64 numbers(static_cast<std::uint64_t>(setting("AXONN_EMULATED_SEED", 0)));
  return numbers;
}

std::map<std::string, std::int64_t> calls() {
  const Locked locked;
  return counts();
}

bool injected(const char* function) {
  const Locked locked;
  wait_for_holder();
  ++counts()[function];
  bool fails = false;
  const auto [first, last] = failures().equal_range(function);
  for (auto it = first; it != last;) {
    const bool now = --it->second == 0;
    fails |= now;
    it = now ? failures().erase(it) : std::next(it);
  }
  return fails;
}

void fail_call(const std::string& function, int nth) {
  const Locked locked;
  failures().emplace(function, nth);
}

bool forget_failures() {
  const Locked locked;
  const bool any = !failures().empty();
  failures().clear();
  return any;
}

cudaError_t returned(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t call(const char* function, const std::function<cudaError_t()>& body) {
  const Locked locked;
  if (injected(function)) {
    const bool allocates = std::strncmp(function, "cudaMalloc", 10) == 0;
    return returned(allocates ? cudaErrorMemoryAllocation : cudaErrorUnknown);
  }
  if (device_count() <= 0 && function != std::string("cudaDriverGetVersion"))
    return returned(cudaErrorNoDevice);
  some_progress();
  return returned(body());
}

namespace {

/// ThreadSanitizer's fibers that no context uses. They are used again and never destroyed: that
/// crashes the sanitizer of g++ 14 once a race was reported.
struct UnusedFibers {
  std::mutex lock;
  std::vector<void*> all;
};

UnusedFibers& unused_fibers() {
  static auto* const fibers = new UnusedFibers;
  return *fibers;
}

}  // namespace

Context::Context() {
  if (!__tsan_create_fiber) return;
  UnusedFibers& unused = unused_fibers();
  const std::lock_guard guard(unused.lock);
  if (unused.all.empty()) {
    fiber_ = __tsan_create_fiber(0);
  } else {
    fiber_ = unused.all.back();
    unused.all.pop_back();
  }
}

Context::~Context() {
  if (!fiber_) return;
  UnusedFibers& unused = unused_fibers();
  const std::lock_guard guard(unused.lock);
  unused.all.push_back(fiber_);
}

void Context::enter() const { enter(fiber_); }

void* Context::current() { return __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr; }

void Context::enter(void* context) {
  constexpr unsigned kWithoutOrder = 1;
  if (context) __tsan_switch_to_fiber(context, kWithoutOrder);
}

Unseen::Unseen() {
  if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}

Unseen::~Unseen() {
  if (AnnotateIgnoreReadsEnd) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

void release(const void* x) {
  if (__tsan_release) __tsan_release(const_cast<void*>(x));
}

void acquire(const void* x) {
  if (__tsan_acquire) __tsan_acquire(const_cast<void*>(x));
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& [value, name] : kErrorNames)
    if (value == error) return name;
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    default:
      return cudaGetErrorName(error);
  }
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaDriverGetVersion(int* version) {
  return call(__func__, [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call(__func__, [&] {
    *count = device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call(__func__, [&] {
    *device = device_of_thread;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call(__func__, [&] {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    device_of_thread = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call(__func__, [&] {
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    *properties = {};
    const char* name = std::getenv("AXONN_EMULATED_NAME");
    std::snprintf(properties->name, sizeof properties->name, "%s", name ? name : "Emulated GPU");
    properties->uuid.bytes[0] = static_cast<char>(0xe0);
    properties->uuid.bytes[15] = static_cast<char>(device);
    properties->major = 9;
    properties->multiProcessorCount = 4;
    properties->totalGlobalMem = device_bytes();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(__func__, [&] {
    if (std::min(device, peer) < 0 || std::max(device, peer) >= device_count())
      return cudaErrorInvalidDevice;
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call(__func__, [&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (peer < 0 || peer >= device_count() || peer == device_of_thread)
      return cudaErrorInvalidDevice;
    const bool added = machine().peers.emplace(device_of_thread, peer).second;
    return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
