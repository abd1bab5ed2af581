// Collectives that are done twice give the bits of those that are done once; a result that is wrong
// once ends the run.
#include "axonn/ranks/comm/call_checks.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// Passes calls to another communicator, and flips a bit of what call `wrong` gives.
class WrongOnce final : public Communicator {
 public:
  WrongOnce(Communicator& inner, int wrong)
      : Communicator("world", inner.rank(), inner.size()), inner_(inner), wrong_(wrong) {}
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  int calls() const { return calls_; }

 private:
  std::shared_ptr<Work::State> start(Call call) override {
    const Buffer out = call.out;
    auto state = start_on(inner_, std::move(call));
    if (calls_++ != wrong_) return state;
    if (state) state->wait();
    if (out.count > 0) *static_cast<std::uint8_t*>(out.data) ^= 1;
    return nullptr;
  }
  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    return inner_.split(color, name);
  }

  Communicator& inner_;
  int wrong_, calls_ = 0;
};

/// Does one call of each kind, and returns all that they give a rank.
std::vector<float> do_calls(Communicator& world, int only = -1) {
  const int rank = world.rank(), size = world.size();
  std::vector<float> all;
  const auto values = [&](int count) {
    std::vector<float> made(count);
    std::iota(made.begin(), made.end(), 0.1F + static_cast<float>(10 * rank));
    return made;
  };
  int number = 0;
  const auto give = [&](int count, const auto& call) {
    std::vector<float> out = values(count);
    if (only < 0 || number == only) call(out);
    ++number;
    all.insert(all.end(), out.begin(), out.end());
  };
  const auto span = [](std::vector<float>& of) { return buffer(std::span(of)); };
  std::vector<float> one = values(3), each = values(3 * size);
  give(5, [&](auto& out) { world.all_reduce(span(out), "a").wait(); });
  give(3 * size, [&](auto& out) { world.all_gather(span(out), span(one), "a").wait(); });
  give(3, [&](auto& out) { world.reduce_scatter(span(out), span(each), "a").wait(); });
  give(3 * size, [&](auto& out) {  // in place
    world.reduce_scatter(buffer(std::span(out).subspan(3 * rank, 3)), span(out), "a").wait();
  });
  give(3 * size, [&](auto& out) {
    world.all_gather(span(out), buffer(std::span(out).subspan(3 * rank, 3)), "a").wait();
  });
  give(4, [&](auto& out) { world.broadcast(span(out), 1, "a").wait(); });
  give(2 * size, [&](auto& out) { world.all_to_all(span(out), span(out), "a").wait(); });
  give(4, [&](auto& out) {
    if (rank == 0) world.send(span(out), 1, "a").wait();
    if (rank == 1) world.recv(span(out), 0, "a").wait();
  });
  world.barrier();
  return all;
}

constexpr int kCalls = 8;

}  // namespace

TEST(CallChecks, CallsThatAreDoneTwiceGiveTheSameBits) {
  run_ranks(3, [&](Communicator& world) {
    const std::vector<float> once = do_calls(world);
    const auto checks = std::make_shared<CallChecks>();
    checks->twice = true;
    WrongOnce counting(world, -1);
    counting.add_checks(checks);
    EXPECT_EQ(do_calls(counting), once);
    EXPECT_EQ(counting.calls(), 2 * (kCalls - (world.rank() == 2 ? 1 : 0)) + 1);
    checks->twice = false;
    EXPECT_EQ(do_calls(counting), once);
  });
}

TEST(CallChecks, AResultThatIsWrongOnceEndsTheRunAndNamesRankAndCall) {
  for (int call = 0; call < kCalls; ++call)
    for (const int repetition : {0, 1}) {
      const bool sends = call == kCalls - 1;
      const auto run = [&] {
        run_ranks(3, [&](Communicator& world) {
          const auto checks = std::make_shared<CallChecks>();
          checks->twice = true;
          checks->rank = concat("rank ", world.rank());
          WrongOnce wrong(world, world.rank() == 1 ? repetition : -1);
          wrong.add_checks(checks);
          do_calls(wrong, call);
        });
      };
      EXPECT_THAT(run, testing::ThrowsMessage<Error>(
                           AllOf(HasSubstr("silent corruption: rank 1: "),
                                 HasSubstr("'a' on group world has two different results"))))
          << call << (sends ? " (recv)" : "");
    }
}

TEST(CallChecks, EndWithTheirOwner) {
  run_ranks(2, [&](Communicator& world) {
    auto checks = std::make_shared<CallChecks>();
    int begun = 0;
    checks->begins = [&](const Buffer&) { ++begun; };
    const auto group = world.split(0, "group");
    world.add_checks(checks);
    std::vector<float> values(3, 1.0F);
    group->all_reduce(buffer(std::span(values)), "a").wait();
    EXPECT_EQ(begun, 1);
    checks.reset();
    group->all_reduce(buffer(std::span(values)), "a").wait();
    EXPECT_EQ(begun, 1);
  });
}
