#include "tests/emulated_gpu/nccl_data.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/emulated_gpu/runtime.h"

extern "C" {
// ThreadSanitizer's; null in other builds.
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char* file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace emulated_gpu {

namespace {

void see(bool seen) {
  const auto call = seen ? AnnotateIgnoreWritesEnd : AnnotateIgnoreWritesBegin;
  if (call) call(__FILE__, __LINE__);
}

constexpr const char* kNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                  "ncclBroadcast", "ncclSend or ncclRecv"};

const char* name(const NcclCall& call) {
  if (call.operation == Operation::pair) return call.inp ? "ncclSend" : "ncclRecv";
  return kNames[static_cast<int>(call.operation)];
}

struct Bf16 {
  std::uint16_t bits;
  operator float() const {  // NOLINT: as a number
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  static Bf16 of(float value) {  // rounds to nearest, ties to even
    auto wide = std::bit_cast<std::uint32_t>(value);
    if (value != value) return {static_cast<std::uint16_t>(wide >> 16 | 0x40)};
    wide += 0x7fff + (wide >> 16 & 1);
    return {static_cast<std::uint16_t>(wide >> 16)};
  }
};

struct F16 {
  _Float16 value;
  operator float() const { return static_cast<float>(value); }  // NOLINT: as a number
  static F16 of(float value) { return {static_cast<_Float16>(value)}; }
};

template <typename T>
T combine(ncclRedOp_t op, T a, T b) {
  if (op == ncclMax) return a < b ? b : a;
  if (op == ncclMin) return b < a ? b : a;
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, F16>)
    return T::of(float(a) + float(b));
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
  else
    return a + b;
}

/// Reduces `count` elements of all ranks.
template <typename T>
std::vector<std::byte> reduce(std::span<const NcclCall> calls, std::span<const int> order,
                              std::size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  T* const sum = reinterpret_cast<T*>(bytes.data());
  const std::size_t ranks = calls.size();
  for (std::size_t part = 0; part < ranks; ++part) {
    const std::size_t begin = part * count / ranks, end = (part + 1) * count / ranks;
    for (std::size_t step = 0; step < ranks; ++step) {
      const NcclCall& call = calls[order[(part + step) % ranks]];
      const T* const x = static_cast<const T*>(call.inp);
      if (step == 0)
        std::copy(x + begin, x + end, sum + begin);
      else
        for (std::size_t i = begin; i < end; ++i) sum[i] = combine(call.op, sum[i], x[i]);
    }
  }
  return bytes;
}

std::vector<std::byte> reduce_typed(std::span<const NcclCall> calls, std::span<const int> order,
                                    std::size_t count) {
  switch (calls[0].type) {
    case ncclUint8:
      return reduce<std::uint8_t>(calls, order, count);
    case ncclInt32:
      return reduce<std::int32_t>(calls, order, count);
    case ncclInt64:
      return reduce<std::int64_t>(calls, order, count);
    case ncclFloat32:
      return reduce<float>(calls, order, count);
    case ncclFloat64:
      return reduce<double>(calls, order, count);
    case ncclBfloat16:
      return reduce<Bf16>(calls, order, count);
    case ncclFloat16:
      return reduce<F16>(calls, order, count);
    default:
      violation("NCCL: a reduction of a type that is not emulated");
  }
}

/// Reports an access to a rank's memory: by its device, and not by the one that moves the data.
template <typename F>
void as(const NcclCall& call, F f) {
  const int before = std::exchange(machine().running_on, call.device);
  see(true);
  f();
  see(false);
  machine().running_on = before;
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

std::size_t NcclCall::inp_bytes(int ranks) const {
  if (!inp) return 0;
  return count * bytes_of(type) * (operation == Operation::reduce_scatter ? ranks : 1);
}

std::size_t NcclCall::out_bytes(int ranks) const {
  if (!out) return 0;
  return count * bytes_of(type) * (operation == Operation::all_gather ? ranks : 1);
}

bool NcclCall::agrees(const NcclCall& other) const {
  const bool same = operation == other.operation && type == other.type && count == other.count;
  return same && (operation == Operation::pair || (op == other.op && peer == other.peer));
}

std::string NcclCall::text() const {
  std::string text = name(*this);
  text += " of " + std::to_string(count) + " elements of type " + std::to_string(type);
  if (operation == Operation::all_reduce || operation == Operation::reduce_scatter)
    text += ", reduction " + std::to_string(op);
  if (peer >= 0)
    text += (operation == Operation::pair ? ", peer " : ", root ") + std::to_string(peer);
  return text;
}

std::string overlap_trouble(const NcclCall& call, int rank, int ranks) {
  const auto* inp = static_cast<const std::byte*>(call.inp);
  const auto* out = static_cast<const std::byte*>(call.out);
  if (!inp || !out) return {};
  const std::size_t inp_bytes = call.inp_bytes(ranks), out_bytes = call.out_bytes(ranks);
  if (inp + inp_bytes <= out || out + out_bytes <= inp) return {};
  if (call.operation == Operation::all_gather)
    return inp == out + rank * inp_bytes
               ? ""
               : "in place, the input must be the rank's part of the output";
  if (call.operation == Operation::reduce_scatter)
    return out == inp + rank * out_bytes
               ? ""
               : "in place, the output must be the rank's part of the input";
  return inp == out ? "" : "input and output overlap, but are not the same buffer";
}

void move_data(std::span<const NcclCall> calls, std::span<const int> order) {
  const int ranks = static_cast<int>(calls.size());
  const NcclCall& first = calls[0];
  const bool broadcast = first.operation == Operation::broadcast;
  std::vector<std::byte> all;
  const auto append = [&](const NcclCall& call) {
    const auto* from = static_cast<const std::byte*>(call.inp);
    all.insert(all.end(), from, from + call.inp_bytes(ranks));
  };
  for (int rank = 0; rank < ranks; ++rank)
    if (const NcclCall& call = calls[rank]; call.inp && (!broadcast || rank == first.peer))
      as(call, [&] { reads(call.inp, call.inp_bytes(ranks), name(call)); });
  if (first.operation == Operation::all_reduce)
    all = reduce_typed(calls, order, first.count);
  else if (first.operation == Operation::reduce_scatter)
    all = reduce_typed(calls, order, first.count * ranks);
  else if (first.operation == Operation::all_gather)
    for (const NcclCall& call : calls) append(call);
  else
    append(calls[broadcast ? first.peer : 0]);
  for (int rank = 0; rank < ranks; ++rank) {
    const NcclCall& call = calls[rank];
    if (!call.out) continue;
    const std::size_t bytes = call.out_bytes(ranks);
    const bool part = call.operation == Operation::reduce_scatter;
    as(call, [&] { writes(call.out, bytes, name(call)); });
    std::memcpy(call.out, all.data() + (part ? rank * bytes : 0), bytes);
  }
}

}  // namespace emulated_gpu
