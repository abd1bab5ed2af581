#include "tests/emulated_gpu/executor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "tests/emulated_gpu/fiber.h"
#include "tests/emulated_gpu/matrices.h"
#include "tests/emulated_gpu/runtime.h"

extern "C" {  // null without the sanitizer
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, std::size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, std::size_t);
}

namespace emulated_gpu {

namespace {

constexpr std::size_t kPage = 4096;
/// With the page below that guards it. Not a power of two, so that stacks share the cache
/// (start()).
constexpr std::size_t kStackBytes = 33 * kPage;
/// Of the memory that holds shared objects with gaps between them, which AddressSanitizer watches.
constexpr std::size_t kSharedArena = 128 << 10, kGap = 64, kMostObjects = 512;
constexpr std::size_t kArena = kPage + kSharedArena + kMostThreads * (kStackBytes + sizeof(Fiber));

// ThreadSanitizer needs about 0.6 ms to make a context, so they are few and used again: the threads
// of a block are dealt to the contexts of a pool, and the blocks of a kernel to the pools of a
// stream. Two threads of a block, or of two blocks, have the same context or pool by chance; then
// a race between them is not seen in this run, and a report's callers can be those of another
// thread of the context. There are no false reports, because the contexts of a pool are ordered
// with each other, and with the stream, before each block that they run.
constexpr int kContexts = 8, kPools = 4, kStreams = 32;

/// Where a thread is.
struct Stop {
  enum What { running, ended, barrier, shuffle, ballot, mma, mfma, load };
  What what = running;
  Line line;
};

struct alignas(64) Thread {
  Stop stop;
  Fiber* fiber;  // null: it has not begun
  // What it exchanges, and what it gets.
  std::uint64_t value;
  const std::type_info* type;
  int mask, context;
  Place place;
  Fragments fragments;
  const void* row;
  bool transposed;
  std::array<const void*, 8> elements;
};

/// Memory and contexts that blocks use one after the other.
class Pool {
 public:
  Pool() : contexts_(__tsan_create_fiber ? kContexts : 1) {
    void* const arena = mmap(nullptr, kArena, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) violation("no memory for the stacks of a block");
    arena_ = static_cast<char*>(arena);
    // There, because ThreadSanitizer would take memset() of memory of earlier pools for a race.
    fibers_ = reinterpret_cast<Fiber*>(stack(kMostThreads));
    for (int i = kMostThreads - 1; i >= 0; --i) {
      fibers_[i].context = i % contexts_;
      fibers_[i].stack = stack(i) + kPage;
      fibers_[i].bytes = kStackBytes - kPage;
      give_back(fibers_[i]);
      // So many pools of ThreadSanitizer's could have too many guards.
      if (contexts_ == 1) mprotect(stack(i), kPage, PROT_NONE);
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { munmap(arena_, kArena); }

  int contexts() const { return contexts_; }
  const Context& context(int i) const { return members_[i]; }
  const char* sync() const { return arena_; }
  char* shared() const { return arena_ + kPage; }

  /// The context's fiber that was given back last. It has the memory of earlier threads of this
  /// context only: ThreadSanitizer would report others.
  Fiber& take(int context);
  void give_back(Fiber& fiber) { free_[fiber.context][frees_[fiber.context]++] = &fiber; }

  /// Everything that the contexts have done happens before all that they will do.
  void merge() const {
    if (contexts_ == 1) return;
    void* const current = Context::current();
    publish();
    for (const Context& context : members_) {
      context.enter();
      acquire(sync());
    }
    Context::enter(current);
  }

  /// For who acquires sync().
  void publish() const {
    if (contexts_ == 1) return;
    void* const current = Context::current();
    for (const Context& context : members_) {
      context.enter();
      release(sync());
    }
    Context::enter(current);
  }

 private:
  char* stack(int i) const { return shared() + kSharedArena + i * kStackBytes; }

  int contexts_;
  std::array<Context, kContexts> members_;
  char* arena_;
  Fiber* fibers_;  // zero: not begun
  std::array<std::array<Fiber*, kMostThreads>, kContexts> free_;
  std::array<int, kContexts> frees_{};
};

/// The pools of a stream.
struct Pools {
  const void* stream = nullptr;
  std::uint64_t used = 0;
  std::array<std::optional<Pool>, kPools> pools;

  /// By the stream's context.
  static Pools& of(const void* stream) {
    // Not on the heap: ThreadSanitizer would report that streams free each other's memory.
    alignas(Pools) static char memory[kStreams][sizeof(Pools)];
    static Pools* all[kStreams];
    static std::uint64_t uses = 0;
    Pools** oldest = &all[0];
    for (Pools*& one : all) {
      if (!one) one = new (memory[&one - all]) Pools;  // {} would be a memset
      if (one->stream == stream && one->used > 0) {
        one->used = ++uses;
        return *one;
      }
      if (one->used < (*oldest)->used) oldest = &one;
    }
    for (auto& pool : (*oldest)->pools) pool.reset();
    (*oldest)->stream = stream;
    (*oldest)->used = ++uses;
    return **oldest;
  }
};

struct SharedObject {
  const void* site;
  char* begin;
  std::size_t bytes;
};

/// A kernel that runs.
class Kernel {
 public:
  Kernel(const std::string& name, dim3 blocks, dim3 threads, std::size_t dynamic_bytes,
         const std::function<void()>& thread)
      : name_(name),
        body_(thread),
        dynamic_bytes_(dynamic_bytes),
        count_(threads.x * threads.y * threads.z),
        random_(random_numbers()() | 1) {
    for (int i = 0; i < count_; ++i) {
      const unsigned x = i % threads.x, y = i / threads.x % threads.y,
                     z = i / (threads.x * threads.y);
      threads_[i].place = {{x, y, z}, {}, threads, blocks};
    }
    objects_.reserve(kMostObjects);
  }

  void run_block(uint3 block, Pool& pool);
  /// Runs the thread that the fiber was entered for, and lets others run until it is to run
  /// another.
  void run_thread(Fiber& fiber);

  bool barrier(bool value, Line line);
  /// Waits for the warp. Returns the running thread.
  Thread& exchange(Stop::What what, Line line);
  void* shared_object(const void* site, std::size_t bytes, std::size_t alignment, Line line);
  void* dynamic_shared(std::size_t bytes, std::size_t alignment, Line line);
  void check_row(const void* row, Line line) const;
  int lane() const { return index() % kWarpThreads; }
  Thread& self() { return *running_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  int index() const { return static_cast<int>(running_ - threads_); }
  std::string stops(int begin, int end) const;
  int random_below(int n);
  /// Continues with a random thread that is runnable, or, if none is, with the host thread. Returns
  /// when something continues with `from`.
  void go_on_with_another(Fiber& from);
  /// Makes threads that have come to the same line runnable.
  void release_threads(int begin, int end);
  void finish(Stop::What what, std::span<Thread> lanes);
  static void find_elements(std::span<Thread> lanes);
  /// Makes an object of the block's shared memory.
  void* place(const void* site, std::size_t bytes, std::size_t alignment);

  static Thread threads_[kMostThreads];

  const std::string& name_;
  const std::function<void()>& body_;
  std::size_t dynamic_bytes_;
  int count_;
  std::uint64_t random_;
  uint3 block_{};
  Pool* pool_ = nullptr;
  Thread* running_ = nullptr;
  Fiber host_;
  void* host_context_ = nullptr;

  std::array<std::uint16_t, kMostThreads> runnable_;
  int runnables_ = 0;
  int at_barrier_ = 0, ended_ = 0;
  bool any_ = false;
  std::array<int, kMostThreads / kWarpThreads> at_exchange_;

  std::vector<SharedObject> objects_;
  char* next_object_ = nullptr;
  std::size_t shared_bytes_ = 0;
};

Thread Kernel::threads_[kMostThreads];

/// The one that runs; the lock is held.
Kernel* kernel = nullptr;

Kernel& running() {
  if (!kernel) violation("a function of kernels is called outside of a kernel");
  return *kernel;
}

/// What a fiber of a pool does.
void run_threads(Fiber& self) {
  while (true) running().run_thread(self);
}

Fiber& Pool::take(int context) {
  Fiber& fiber = *free_[context][--frees_[context]];
  const auto color = (&fiber - fibers_) / 16 % 16 * 256;  // so that stacks share the cache
  if (!fiber.at) fiber.begin(static_cast<std::size_t>(color), run_threads);
  return fiber;
}

/// As fast as random orders need (xorshift64*).
int Kernel::random_below(int n) {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return static_cast<int>((random_ * 0x2545f4914f6cdd1d >> 32) * static_cast<unsigned>(n) >> 32);
}

std::string text(Line line) {
  return std::string(line.file_name()) + ':' + std::to_string(line.line());
}

bool same(Line a, Line b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

void Kernel::run_block(uint3 block, Pool& pool) {
  block_ = block;
  pool_ = &pool;
  release(pool.sync());
  pool.merge();
  objects_.clear();
  shared_bytes_ = 0;
  next_object_ = pool.shared();
  if (__asan_poison_memory_region) __asan_poison_memory_region(pool.shared(), kSharedArena);

  at_barrier_ = ended_ = 0;
  at_exchange_ = {};
  std::iota(runnable_.begin(), runnable_.begin() + count_, 0);
  runnables_ = count_;
  const int contexts = pool.contexts();
  if (contexts > 1)
    for (int i = count_ - 1; i > 0; --i) std::swap(runnable_[i], runnable_[random_below(i + 1)]);
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[runnable_[i]];
    thread.place.block = block;
    thread.stop.what = Stop::running;
    thread.context = i % contexts;
    thread.fiber = nullptr;
  }
  host_context_ = Context::current();
  go_on_with_another(host_);
  if (ended_ < count_) fail("threads wait for others that do not come: " + stops(0, count_));
}

void Kernel::run_thread(Fiber& fiber) {
  body_();
  running_->stop.what = Stop::ended;
  ++ended_;
  pool_->give_back(fiber);  // for the next thread that begins: without a jump
  go_on_with_another(fiber);
}

void Kernel::go_on_with_another(Fiber& from) {
  const bool contexts = pool_->contexts() > 1;
  if (runnables_ == 0) {
    if (contexts) Context::enter(host_context_);
    return jump(from, host_);
  }
  const int i = random_below(runnables_);
  Thread& next = threads_[runnable_[i]];
  runnable_[i] = runnable_[--runnables_];
  running_ = &next;
  if (contexts) pool_->context(next.context).enter();
  if (!next.fiber) {
    next.fiber = &pool_->take(next.context);
  }
  if (next.fiber != &from) jump(from, *next.fiber);
}

bool Kernel::barrier(bool value, Line line) {
  running_->value = value;
  running_->stop = {Stop::barrier, line};
  if (++at_barrier_ == count_) {
    at_barrier_ = 0;
    release_threads(0, count_);
    any_ = std::any_of(threads_, threads_ + count_, [](const Thread& x) { return x.value != 0; });
    pool_->merge();
  }
  go_on_with_another(*running_->fiber);
  return any_;
}

Thread& Kernel::exchange(Stop::What what, Line line) {
  running_->stop = {what, line};
  const int begin = index() - lane(), end = std::min(begin + kWarpThreads, count_);
  if (++at_exchange_[begin / kWarpThreads] == end - begin) {
    at_exchange_[begin / kWarpThreads] = 0;
    release_threads(begin, end);
    finish(what, std::span(threads_ + begin, threads_ + end));
  }
  go_on_with_another(*running_->fiber);
  return *running_;
}

void Kernel::release_threads(int begin, int end) {
  const Stop first = threads_[begin].stop;
  for (int i = begin; i < end; ++i) {
    Stop& stop = threads_[i].stop;
    if (stop.what != first.what || !same(stop.line, first.line))
      fail("threads wait at different places: " + stops(begin, end));
    runnable_[runnables_++] = static_cast<std::uint16_t>(i);
  }
  for (int i = begin; i < end; ++i) threads_[i].stop.what = Stop::running;
}

void Kernel::finish(Stop::What what, std::span<Thread> lanes) {
  if (what == Stop::shuffle) {
    std::array<std::uint64_t, kWarpThreads> values;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const std::size_t from = i ^ static_cast<std::size_t>(lanes[i].mask);
      if (from >= lanes.size())
        fail("lane " + std::to_string(i) + " shuffles with lane " + std::to_string(from) +
             ", which does not exist, at " + text(lanes[i].stop.line));
      if (*lanes[i].type != *lanes[0].type)
        fail("lanes shuffle different types at " + text(lanes[i].stop.line));
      values[i] = lanes[from].value;
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i].value = values[i];
  }
  if (what == Stop::ballot) {
    std::uint64_t ballot = 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) ballot |= lanes[i].value << i;
    for (Thread& lane : lanes) lane.value = ballot;
  }
  if (what >= Stop::mma) {
    const std::size_t needed = what == Stop::mfma ? 64 : 32;
    if (lanes.size() != needed || kWarpThreads != needed)
      fail("an operation on matrices needs a warp of " + std::to_string(needed) + " lanes, at " +
           text(lanes[0].stop.line));
    const auto of = [lanes](int i) -> Fragments& { return lanes[i].fragments; };
    if (what == Stop::mma) multiply_32(of);
    if (what == Stop::mfma) multiply_64(of);
    if (what == Stop::load) find_elements(lanes);
  }
}

/// Lanes 8i to 8i + 7 have the rows of matrix i of 8 x 8.
void Kernel::find_elements(std::span<Thread> lanes) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const int outer = lane / 4, inner = lane % 4 * 2 + i % 2;
      const bool transposed = lanes[lane].transposed;
      const Thread& row = lanes[i / 2 * 8 + (transposed ? inner : outer)];
      lanes[lane].elements[i] =
          static_cast<const char*>(row.row) + 2 * (transposed ? outer : inner);
    }
}

void* Kernel::shared_object(const void* site, std::size_t bytes, std::size_t alignment, Line line) {
  for (const SharedObject& object : objects_)
    if (object.site == site) return object.begin;
  shared_bytes_ += bytes;
  if (shared_bytes_ > kSharedBytes)
    fail("its shared memory, with that at " + text(line) + ", has " +
         std::to_string(shared_bytes_) + " bytes, more than " + std::to_string(kSharedBytes));
  return place(site, bytes, alignment);
}

void* Kernel::dynamic_shared(std::size_t bytes, std::size_t alignment, Line line) {
  for (const SharedObject& object : objects_)
    if (object.site == this) return object.begin;
  if (bytes != dynamic_bytes_)
    fail("the shared memory of its launch has " + std::to_string(dynamic_bytes_) +
         " bytes, but the kernel has " + std::to_string(bytes) + " at " + text(line));
  return place(this, bytes, alignment);
}

void* Kernel::place(const void* site, std::size_t bytes, std::size_t alignment) {
  alignment = std::max<std::size_t>(alignment, 8);
  // At an odd multiple of the alignment.
  auto address = reinterpret_cast<std::uintptr_t>(next_object_) + kGap;
  address = (address + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
  char* const begin = reinterpret_cast<char*>(address);
  next_object_ = begin + bytes;
  if (objects_.size() == kMostObjects || next_object_ + kGap > pool_->shared() + kSharedArena)
    fail("too many shared objects");
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(begin, bytes);
  // Not memset(), which ThreadSanitizer would take for the thread's access.
  auto* word = reinterpret_cast<volatile std::uint64_t*>(begin);
  for (std::size_t i = 0; i < bytes / sizeof *word; ++i) *word++ = ~std::uint64_t{0};
  for (auto* p = reinterpret_cast<volatile char*>(word); p < next_object_; ++p) *p = '\xff';
  objects_.push_back({site, begin, bytes});
  return begin;
}

void Kernel::check_row(const void* row, Line line) const {
  const auto* const begin = static_cast<const char*>(row);
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    fail("lane " + std::to_string(lane()) + " loads a row that is not aligned to 16 bytes at " +
         text(line));
  for (const SharedObject& object : objects_)
    if (begin >= object.begin && begin + 16 <= object.begin + object.bytes) return;
  fail("lane " + std::to_string(lane()) + " loads a row outside of shared memory at " + text(line));
}

void Kernel::fail(const std::string& what) const {
  const auto number = [](unsigned x) { return std::to_string(x); };
  violation("kernel " + name_ + ", block (" + number(block_.x) + ", " + number(block_.y) + ", " +
            number(block_.z) + ") of " + std::to_string(count_) + " threads: " + what);
}

std::string Kernel::stops(int begin, int end) const {
  static constexpr const char* kNames[] = {"running",  "ended", "a barrier", "a shuffle",
                                           "a ballot", "mma",   "mfma",      "ldmatrix"};
  const auto name = [](const Stop& stop) {
    const bool waits = stop.what != Stop::running && stop.what != Stop::ended;
    return kNames[stop.what] + (waits ? " at " + text(stop.line) : std::string());
  };
  std::map<std::string, std::string> threads;  // of each place, as ranges
  for (int i = begin; i < end;) {
    const std::string at = name(threads_[i].stop);
    int last = i;
    while (last + 1 < end && name(threads_[last + 1].stop) == at) ++last;
    std::string& list = threads[at];
    list += (list.empty() ? "" : ", ") + std::to_string(i);
    if (last > i) list += '-' + std::to_string(last);
    i = last + 1;
  }
  std::string all;
  for (const auto& [at, list] : threads)
    all += (all.empty() ? "" : "; ") + at + ": threads " + list;
  return all;
}

}  // namespace

bool sync_threads(bool value, Line line) { return running().barrier(value, line); }

std::uint64_t shuffle_xor(std::uint64_t value, int mask, const std::type_info& type, Line line) {
  Thread& self = running().self();
  self.value = value;
  self.mask = mask;
  self.type = &type;
  return running().exchange(Stop::shuffle, line).value;
}

std::uint64_t lanes_with(bool is, Line line) {
  running().self().value = is ? 1 : 0;
  return running().exchange(Stop::ballot, line).value;
}

void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Line line) {
  Fragments& fragments = running().self().fragments;
  std::copy_n(c, 4, fragments.c);
  std::copy_n(a, 4, fragments.a);
  std::copy_n(b, 2, fragments.b);
  std::copy_n(running().exchange(Stop::mma, line).fragments.c, 4, c);
}

void mfma(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[2], Line line) {
  Fragments& fragments = running().self().fragments;
  std::copy_n(c, 4, fragments.c);
  std::copy_n(a, 2, fragments.a);
  std::copy_n(b, 2, fragments.b);
  std::copy_n(running().exchange(Stop::mfma, line).fragments.c, 4, c);
}

std::array<const void*, 8> elements_to_load(const void* row, bool transposed, Line line) {
  Kernel& kernel = running();
  kernel.self().row = row;
  kernel.self().transposed = transposed;
  kernel.check_row(row, line);
  return kernel.exchange(Stop::load, line).elements;
}

void* shared_object(const void* site, std::size_t bytes, std::size_t alignment, Line line) {
  return running().shared_object(site, bytes, alignment, line);
}

void* dynamic_shared(std::size_t bytes, std::size_t alignment, Line line) {
  return running().dynamic_shared(bytes, alignment, line);
}

const Place& place() { return running().self().place; }

void run_kernel(const std::string& name, dim3 blocks, const BlockOf& block,
                const std::function<void()>& thread) {
  const dim3 threads = block.threads;
  if (kernel) violation("kernel " + name + " begins while another runs");
  if (threads.x * threads.y * threads.z > kMostThreads) violation(name + ": too many threads");
  Kernel self(name, blocks, threads, block.shared_bytes, thread);
  kernel = &self;
  Pools& pools = Pools::of(Context::current());
  std::vector<std::uint64_t> order(static_cast<std::uint64_t>(blocks.x) * blocks.y * blocks.z);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_numbers());
  const std::size_t used = std::min<std::size_t>(order.size(), __tsan_create_fiber ? kPools : 1);
  std::size_t next = 0;
  for (const std::uint64_t i : order) {
    std::optional<Pool>& pool = pools.pools[next++ % used];
    if (!pool) pool.emplace();
    const std::uint64_t row = i / blocks.x;
    self.run_block({static_cast<unsigned>(i % blocks.x), static_cast<unsigned>(row % blocks.y),
                    static_cast<unsigned>(row / blocks.y)},
                   *pool);
  }
  for (const std::optional<Pool>& pool : std::span(pools.pools).first(used)) {
    pool->publish();
    acquire(pool->sync());
  }
  kernel = nullptr;
}

}  // namespace emulated_gpu
