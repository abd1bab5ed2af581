#include "axonn/ranks/comm/self.h"

#include <functional>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/ranks/comm/collectives.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Self, RunsEveryCollectiveInAGroupOfOneRank) { check_transport(*make_self()); }

TEST(Self, ThrowsAbortedWithTheReasonAfterAbort) {
  const auto self = make_self();
  const auto part = self->split(0, "part");
  part->abort("no more");
  part->abort("later reasons are not kept");
  EXPECT_THAT([&] { self->barrier(); }, ThrowsMessage<Aborted>("no more"));
  EXPECT_THAT([&] { part->split(0, "x"); }, ThrowsMessage<Aborted>("no more"));
}

TEST(Self, RefusesWrongArgumentsAndNamesTheCall) {
  const auto self = make_self();
  std::vector<float> a(3), b(4);
  std::vector<std::uint8_t> bytes(3);
  const Buffer three = buffer(std::span<float>(a)), four = buffer(std::span<float>(b));
  EXPECT_THAT([&] { self->all_gather(four, three, "block 2"); },
              ThrowsMessage<Error>(HasSubstr("all_gather of 4 f32 'block 2' on group self of 1 "
                                             "ranks: got pieces of 3 f32 and a whole of 4 f32")));
  EXPECT_THAT([&] { self->reduce_scatter(four, three); },
              ThrowsMessage<Error>(HasSubstr("want a whole of 4")));
  EXPECT_THAT([&] { self->all_to_all(four, three); },
              ThrowsMessage<Error>(HasSubstr("out has 4 f32, inp 3 f32")));
  const std::vector<std::int64_t> counts{3}, more{4}, two{1, 2}, below{-1};
  const auto exchange = [&](const Buffer& out, const std::vector<std::int64_t>& to,
                            const std::vector<std::int64_t>& from) {
    return [&] { self->all_to_all(out, three, {to, from}, "rows"); };
  };
  EXPECT_THAT(exchange(three, two, counts), ThrowsMessage<Error>(HasSubstr("got counts for 2")));
  EXPECT_THAT(
      exchange(four, counts, counts),
      ThrowsMessage<Error>(HasSubstr("(3 given, 4 taken) of 4 f32 'rows' on group self: out "
                                     "has 4 elements, its 1 counts add up to 3")));
  EXPECT_THAT(exchange(four, below, more), ThrowsMessage<Error>(HasSubstr("the least is -1")));
  EXPECT_THAT(
      exchange(four, counts, more),
      ThrowsMessage<Error>(HasSubstr("rank 0 gives 3 elements to rank 0, which expects 4")));
  EXPECT_THAT(exchange(three, counts, counts),
              ThrowsMessage<Error>(HasSubstr("out and inp overlap")));
  EXPECT_THAT([&] { self->broadcast(three, 1); },
              ThrowsMessage<Error>(HasSubstr("(root 1) of 3 f32 on group self: its ranks are 0")));
  EXPECT_THAT([&] { self->send(three, 0); }, ThrowsMessage<Error>(HasSubstr("to itself")));
  EXPECT_THAT([&] { self->recv(three, 0); }, ThrowsMessage<Error>(HasSubstr("from itself")));
  EXPECT_THAT([&] { self->all_reduce(buffer(std::span<std::uint8_t>(bytes))); },
              ThrowsMessage<Error>(HasSubstr("u8 would overflow")));
  EXPECT_THAT(
      [&] {
        self->all_reduce({nullptr, 2, DType::f32});
      },
      ThrowsMessage<Error>(HasSubstr("2 elements at address 0")));
}

TEST(Self, RefusesBuffersThatOverlapExceptInPlace) {
  const auto self = make_self();
  std::vector<float> x(10);
  const std::span<float> all(x);
  const Buffer low = buffer(all.first(6)), high = buffer(all.last(6));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { self->all_gather(low, high); }, [&] { self->reduce_scatter(low, high); },
           [&] { self->all_to_all(low, high); }}) {
    EXPECT_THAT(call,
                ThrowsMessage<Error>(HasSubstr("of 6 f32 on group self: out and inp overlap")));
  }
  self->all_gather(low, low);
  self->all_gather(buffer(all.first(5)), buffer(all.last(5)));
}

TEST(Self, CountsCallsAndBytes) {
  const auto self = make_self();
  std::vector<float> a(3), b(3);
  self->all_reduce(buffer(std::span<float>(a)));
  self->all_gather(buffer(std::span<float>(b)), buffer(std::span<float>(a)));
  EXPECT_EQ(self->stats().calls, 2);
  EXPECT_EQ(self->stats().bytes, 24);
}
