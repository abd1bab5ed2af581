#include "axonn/compute/ops/repeating_backend.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

namespace {

/// Changes the first byte of the last operand that an operation writes, in the first `times`
/// operations; each time in another way.
class WrongAtFirst final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  int times = 0, operations = 0;

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    run();
    ++operations;
    if (times == 0) return;
    for (std::size_t i = call.operands.size(); i-- > 0;)
      if (call.writes(i) && call.operands[i].count() > 0) {
        *static_cast<std::uint8_t*>(call.operands[i].data) ^= static_cast<std::uint8_t>(times);
        break;
      }
    --times;
  }
};

struct Repeated {
  Repeated() {
    auto wrong = std::make_unique<WrongAtFirst>(make_cpu_backend(1));
    inner = wrong.get();
    backend = std::make_unique<RepeatingBackend>(std::move(wrong), "rank 3");
    backend->mark("h.1.mlp.c_fc.weight");
  }
  WrongAtFirst* inner;
  std::unique_ptr<RepeatingBackend> backend;
};

/// Operations that overwrite, that add to what was there, and that work in place.
struct Case {
  std::string name;
  std::function<std::vector<Operand>(Backend&)> run;
};

std::vector<Operand> one(Operand operand) {
  std::vector<Operand> all;
  all.push_back(std::move(operand));
  return all;
}

const std::vector<Case>& all_cases() {
  static const auto input = [](const char* name, std::int64_t rows, std::int64_t cols,
                               std::int64_t gap = 0) {
    return Operand(random_values(name, rows, cols, DType::f32), DType::f32, gap);
  };
  static const std::vector<Case> cases{
      {"matmul",
       [](Backend& backend) {
         const Operand a = input("a", 9, 40), b = input("b", 40, 7);
         Operand out(9, 7, DType::f32, 3);
         backend.matmul({.out = out, .a = a, .b = b});
         return one(std::move(out));
       }},
      {"matmul",
       [](Backend& backend) {
         const Operand a = input("a", 9, 40), b = input("b", 40, 7);
         Operand out = input("out", 9, 7, 2);
         backend.matmul({.out = out, .a = a, .b = b, .accumulate = true});
         return one(std::move(out));
       }},
      {"column_sum",
       [](Backend& backend) {
         Operand out = input("out", 1, 31);
         backend.run(ops::ColumnSum{out, input("inp", 20, 31)});
         return one(std::move(out));
       }},
      {"scale",
       [](Backend& backend) {
         Operand out = input("out", 5, 31, 1);
         backend.run(ops::Scale{out, out, 0.3F});
         return one(std::move(out));
       }},
      {"adamw",
       [](Backend& backend) {
         std::vector<Operand> all;
         for (const char* name : {"master", "first", "out"}) all.push_back(input(name, 1, 50));
         all.emplace_back(1, 50, DType::f32);
         backend.run(ops::AdamW{.master = all[0],
                                .first = all[1],
                                .second = all[3],
                                .gradient = input("gradient", 1, 50),
                                .out = all[2],
                                .lr = 0.1F});
         return all;
       }},
  };
  return cases;
}

void expect_equal(const std::vector<Operand>& got, const std::vector<Operand>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].memory() == want[i].memory());
}

}  // namespace

TEST(RepeatingBackend, ComputesTwiceAndChangesNoBit) {
  for (const auto& [name, run] : all_cases()) {
    SCOPED_TRACE(name);
    const Repeated repeated;
    expect_equal(run(*repeated.backend), run(*make_cpu_backend(1)));
    EXPECT_EQ(repeated.inner->operations, 2);
    EXPECT_THAT(repeated.backend->take_remarks(), IsEmpty());
  }
}

TEST(RepeatingBackend, TakesTheResultThatTwoOfThreeHaveAndSaysSo) {
  for (const auto& [name, run] : all_cases()) {
    const Repeated repeated;
    repeated.inner->times = 1;
    expect_equal(run(*repeated.backend), run(*make_cpu_backend(1)));
    EXPECT_EQ(repeated.inner->operations, 3);
    EXPECT_THAT(repeated.backend->take_remarks(),
                ElementsAre(HasSubstr(concat("silent corruption: rank 3: ", name,
                                             " of h.1.mlp.c_fc.weight had two different"))));
    EXPECT_THAT(repeated.backend->take_remarks(), IsEmpty());
  }
}

TEST(RepeatingBackend, ThreeDifferentResultsEndTheRunAndNameRankLayerAndOperation) {
  for (const auto& [name, run] : all_cases()) {
    const Repeated repeated;
    repeated.inner->times = 3;
    EXPECT_THAT([&] { run(*repeated.backend); },
                ThrowsMessage<Error>(AllOf(HasSubstr("silent corruption: rank 3: " + name),
                                           HasSubstr("of h.1.mlp.c_fc.weight has three"))));
  }
}

TEST(RepeatingBackend, DoesAnOperationOfTheProgramOnce) {
  const Repeated repeated;
  Operand out(1, 4, DType::f32);
  int calls = 0;
  repeated.backend->on_host(
      {.name = "own", .results = {out}, .compute = [&](auto, auto) { ++calls; }});
  EXPECT_EQ(calls, 1);
}
