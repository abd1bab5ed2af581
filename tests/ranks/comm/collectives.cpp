#include "tests/ranks/comm/collectives.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/foundation/base/random.h"

#include "tests/support/sanitized.h"

namespace axonn {

namespace {

/// Above this count only f32, bf16 and f16 are tested.
constexpr std::int64_t kAllTypes = 10'000;

template <typename T>
using Values = std::vector<T>;

template <typename T>
concept Half = is_half(dtype_of<T>);

/// 64 pseudorandom bits (the finalizer of SplitMix64). It is fast because every rank computes the
/// values of all ranks.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The input values of a rank. Their magnitudes vary, so that another order of summation gives
/// other bits.
template <typename T>
Values<T> values_of(int rank, std::int64_t count, int salt) {
  Values<T> values(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = mixed(((rank * 16ull + salt) << 32) + i);
    const std::uint32_t exponent = 117 + bits % 20;  // 2^-10 to 2^9
    const float x =
        std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32 & 0x807fffff) | exponent << 23);
    if constexpr (Half<T>)
      put(values[i], x);
    else if constexpr (std::is_integral_v<T>)
      values[i] = static_cast<T>(bits >> 36);
    else
      values[i] = x;
  }
  return values;
}

template <typename T>
auto widened(T x) {
  if constexpr (Half<T>)
    return get(x);
  else
    return x;
}

/// The oracle: combines elements [first, first + count) of all ranks, in f32 for bf16 and f16.
/// Ranks are paired up with their neighbours; the results are paired up again, and one without a
/// neighbour goes on as it is.
template <typename T>
Values<T> combined(const std::vector<Values<T>>& ranks, std::int64_t first, std::int64_t count,
                   ReduceOp op) {
  using Wide = decltype(widened(T()));
  std::vector<Values<Wide>> level;
  for (const Values<T>& values : ranks) {
    level.emplace_back(count);
    for (std::int64_t i = 0; i < count; ++i) level.back()[i] = widened(values[first + i]);
  }
  for (; level.size() > 1; level.resize((level.size() + 1) / 2))
    for (std::size_t r = 0; r < level.size(); r += 2) {
      for (std::int64_t i = 0; i < count && r + 1 < level.size(); ++i) {
        const Wide x = level[r][i], y = level[r + 1][i];
        level[r][i] = op == ReduceOp::sum   ? static_cast<Wide>(x + y)
                      : op == ReduceOp::max ? std::max(x, y)
                                            : std::min(x, y);
      }
      if (r > 0) level[r / 2] = std::move(level[r]);
    }
  Values<T> rounded(count);
  for (std::int64_t i = 0; i < count; ++i)
    if constexpr (Half<T>)
      put(rounded[i], level.front()[i]);
    else
      rounded[i] = level.front()[i];
  return rounded;
}

template <typename T>
void expect_same(const Values<T>& got, const Values<T>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0) return;
  std::size_t i = 0;
  while (std::memcmp(&got[i], &want[i], sizeof(T)) == 0) ++i;
  ADD_FAILURE() << what << " differs first at " << i << " of " << got.size();
}

/// Checks the collectives of one type on one group.
template <typename T>
class Checker {
 public:
  Checker(Communicator& comm, std::int64_t count) : comm_(comm), n_(count) {
    for (int r = 0; r < comm.size(); ++r) {
      parts_.push_back(values_of<T>(r, n_, 1));
      wholes_.push_back(values_of<T>(r, n_ * comm.size(), 2));
    }
  }

  void all() {
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
      if (!std::is_same_v<T, std::uint8_t> || op != ReduceOp::sum) all_reduce(op);
    if (!std::is_same_v<T, std::uint8_t>) reduce_scatter();
    all_gather();
    all_to_all();
    for (int root : {0, comm_.size() - 1, comm_.size() / 2}) broadcast(root);
  }

 private:
  std::string what(const char* operation) const {
    return std::string(operation) + " of " + std::to_string(n_) + ' ' +
           std::string(name_of(dtype_of<T>)) + " on rank " + std::to_string(comm_.rank()) + " of " +
           std::to_string(comm_.size());
  }
  const Values<T>& mine(const std::vector<Values<T>>& of) const { return of[comm_.rank()]; }

  void all_reduce(ReduceOp op) {
    Values<T> data = mine(parts_);
    const Values<T> want = combined(parts_, 0, n_, op);
    comm_.all_reduce(buffer(std::span<T>(data)), "sum", op).wait();
    expect_same(data, want, what("all_reduce"));
  }

  void reduce_scatter() {
    const std::int64_t first = comm_.rank() * n_;
    const Values<T> want = combined(wholes_, first, n_, ReduceOp::sum);
    Values<T> out(n_), inp = mine(wholes_);
    comm_.reduce_scatter(buffer(std::span<T>(out)), buffer(std::span<T>(inp)), "apart").wait();
    expect_same(out, want, what("reduce_scatter"));
    expect_same(inp, mine(wholes_), what("the inp of reduce_scatter"));
    const auto piece = std::span<T>(inp).subspan(first, n_);
    comm_.reduce_scatter(buffer(piece), buffer(std::span<T>(inp)), "in place").wait();
    Values<T> rest = mine(wholes_);
    std::ranges::copy(want, rest.begin() + first);
    expect_same(inp, rest, what("reduce_scatter in place"));
  }

  void all_gather() {
    Values<T> want, out(n_ * comm_.size()), inp = mine(parts_);
    for (const Values<T>& values : parts_) want.insert(want.end(), values.begin(), values.end());
    comm_.all_gather(buffer(std::span<T>(out)), buffer(std::span<T>(inp)), "apart").wait();
    expect_same(out, want, what("all_gather"));
    Values<T> place(n_ * comm_.size());
    const auto piece = std::span<T>(place).subspan(comm_.rank() * n_, n_);
    std::ranges::copy(inp, piece.begin());
    comm_.all_gather(buffer(std::span<T>(place)), buffer(piece), "in place").wait();
    expect_same(place, want, what("all_gather in place"));
  }

  void all_to_all() {
    Values<T> want, out(n_ * comm_.size()), inp = mine(wholes_);
    for (const Values<T>& values : wholes_) {
      const auto piece = std::span(values).subspan(comm_.rank() * n_, n_);
      want.insert(want.end(), piece.begin(), piece.end());
    }
    comm_.all_to_all(buffer(std::span<T>(out)), buffer(std::span<T>(inp)), "apart").wait();
    expect_same(out, want, what("all_to_all"));
    comm_.all_to_all(buffer(std::span<T>(inp)), buffer(std::span<T>(inp)), "in place").wait();
    expect_same(inp, want, what("all_to_all in place"));
  }

  void broadcast(int root) {
    Values<T> data = mine(parts_);
    comm_.broadcast(buffer(std::span<T>(data)), root, "root").wait();
    expect_same(data, parts_[root], what("broadcast"));
  }

  Communicator& comm_;
  std::int64_t n_;
  std::vector<Values<T>> parts_, wholes_;  // by rank: (n), (size · n)
};

/// The elements that rank `from` gives to rank `to` in exchange number `which`. The last ones are
/// large: pieces of several messages, of which some ranks get none.
std::int64_t exchanged(int which, int from, int to, int size) {
  const std::uint64_t bits = mixed((which * 64ull + from) * 64 + to);
  if (which == 0) return 0;
  if (which == 1) return from == size - 1 ? 1000 + to : 0;
  if (which == 2) return to == 0 ? 3 * from + 1 : 0;
  if (which < 6) return static_cast<std::int64_t>(bits % 3 == 0 ? 0 : bits / 3 % 40);
  return static_cast<std::int64_t>(bits % 3 == 0 ? 0 : bits / 3 % 400'000);
}
constexpr int kExchanges = 8;

/// One rank's part of an exchange, and what it must get.
template <typename T>
struct Exchanged {
  Exchanged(const Communicator& comm, int which) : number(which) {
    const int mine = comm.rank(), size = comm.size();
    for (int other = 0; other < size; ++other) {
      to.push_back(exchanged(which, mine, other, size));
      from.push_back(exchanged(which, other, mine, size));
      const Values<T> given = values_of<T>(mine * size + other, to.back(), which),
                      taken = values_of<T>(other * size + mine, from.back(), which);
      inp.insert(inp.end(), given.begin(), given.end());
      want.insert(want.end(), taken.begin(), taken.end());
    }
    out.resize(want.size());
  }
  Work start(Communicator& comm) {
    return comm.all_to_all(buffer(std::span(out)), buffer(std::span(inp)), {to, from}, "exchange");
  }
  int number;
  std::vector<std::int64_t> to, from;
  Values<T> inp, out, want;
};

template <typename T>
void check_exchange_of(Communicator& comm) {
  std::vector<Exchanged<T>> all;
  for (int which = 0; which < kExchanges; ++which) all.emplace_back(comm, which);
  std::vector<Work> works;
  for (Exchanged<T>& each : all) works.push_back(each.start(comm));
  std::ranges::reverse(works);
  for (Work& work : works) work.wait();
  for (const Exchanged<T>& each : all)
    expect_same(each.out, each.want,
                "exchange " + std::to_string(each.number) + " of " +
                    std::string(name_of(dtype_of<T>)) + " on rank " + std::to_string(comm.rank()) +
                    " of " + std::to_string(comm.size()));
}

}  // namespace

void check_exchange(Communicator& comm) {
  check_exchange_of<float>(comm);
  check_exchange_of<bf16>(comm);
  check_exchange_of<f16>(comm);
  check_exchange_of<std::int32_t>(comm);
}

void check_collectives(Communicator& comm, std::int64_t count) {
  Checker<float>(comm, count).all();
  Checker<bf16>(comm, count).all();
  Checker<f16>(comm, count).all();
  if (count > kAllTypes) return;
  Checker<double>(comm, count).all();
  Checker<std::int32_t>(comm, count).all();
  Checker<std::int64_t>(comm, count).all();
  Checker<std::uint8_t>(comm, count).all();
  comm.barrier("checked");
}

void check_many_in_flight(Communicator& world, int rounds) {
  const auto pairs = world.split(world.rank() / 2, "pairs");
  const auto odd_even = world.split(world.rank() % 2, "odd and even");
  const std::vector<Communicator*> groups = {&world, pairs.get(), odd_even.get()};
  const Random random(world.rank(), "order");
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t n = 1 + 997 * (round % 40);
    std::vector<Values<float>> data(9, Values<float>(n, world.rank() + 1.f));
    std::vector<Work> works;
    for (int i = 0; i < 9; ++i)
      works.push_back(groups[i % 3]->all_reduce(buffer(std::span<float>(data[i])), "many"));
    for (int left = 9; left > 0; --left) {
      const auto pick = random.below(round * 9 + left, left);
      works[pick].wait();
      works.erase(works.begin() + pick);
    }
    for (int i = 0; i < 9; ++i) {
      float want = 0;
      for (int r = 0; r < world.size(); ++r) {
        const bool in[] = {true, r / 2 == world.rank() / 2, r % 2 == world.rank() % 2};
        if (in[i % 3]) want += r + 1.f;
      }
      EXPECT_EQ(std::ranges::count(data[i], want), n) << "round " << round << ", collective " << i;
    }
  }
}

void check_split(Communicator& world) {
  const auto thirds = world.split(world.rank() % 3, "thirds");
  std::vector<int> members(thirds->size());
  int mine = world.rank();
  thirds->all_gather(buffer(std::span<int>(members)), buffer(std::span<int>(&mine, 1))).wait();
  std::vector<int> want;
  for (int r = world.rank() % 3; r < world.size(); r += 3) want.push_back(r);
  EXPECT_EQ(members, want);
  EXPECT_EQ(thirds->rank(), world.rank() / 3);

  const auto alone = thirds->split(thirds->rank(), "alone");
  EXPECT_EQ(alone->size(), 1);
  const auto again = thirds->split(7, "again");
  EXPECT_EQ(again->size(), thirds->size());
  EXPECT_EQ(again->rank(), thirds->rank());
  again->barrier();
}

void check_send_recv(Communicator& world) {
  struct Message {
    int other;
    Values<int> sent, got;
  };
  std::vector<Message> messages;
  const auto content = [](int from, int to, std::int64_t count) {
    return Values<int>(count, from * 1000 + to);
  };
  for (int other = 0; other < world.size(); ++other)
    for (std::int64_t count : {1, 300, 200'000})
      if (other != world.rank())
        messages.push_back({other, content(world.rank(), other, count), Values<int>(count)});
  std::vector<Work> works;
  for (Message& m : messages) {
    works.push_back(world.send(buffer(std::span<int>(m.sent)), m.other, "to"));
    works.push_back(world.recv(buffer(std::span<int>(m.got)), m.other, "from"));
  }
  for (Work& work : works) work.wait();
  for (const Message& m : messages)
    expect_same(m.got, content(m.other, world.rank(), std::ssize(m.got)), "recv");
}

std::uint64_t hash_of_sums(Communicator& world) {
  std::string bytes;
  for (std::int64_t n : {1, 1000, 100'003}) {
    Values<float> f32 = values_of<float>(world.rank(), n, 3);
    Values<bf16> half = values_of<bf16>(world.rank(), n, 4);
    world.all_reduce(buffer(std::span<float>(f32)), "f32").wait();
    world.all_reduce(buffer(std::span<bf16>(half)), "bf16").wait();
    bytes.append(reinterpret_cast<const char*>(f32.data()), n * sizeof(float));
    bytes.append(reinterpret_cast<const char*>(half.data()), n * sizeof(bf16));
  }
  return hash_text(bytes);
}

void check_transport(Communicator& world) {
  for (int size = 1; size <= world.size(); ++size) {
    const auto group = world.split(world.rank() < size, "first " + std::to_string(size));
    // Zero, one, odd, about the minimum of a segment, and more than a block, a piece and a small
    // message.
    for (std::int64_t count : {0, 1, 7, 4097, 70'001}) check_collectives(*group, count);
    check_exchange(*group);
  }
  check_many_in_flight(world, 10);
  check_split(world);
  check_send_recv(world);
}

std::vector<int> some_ranks() {
  return testing_support::sanitized() ? std::vector{3} : std::vector{1, 2, 6};
}

}  // namespace axonn
