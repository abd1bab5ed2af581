// The table of row-wise operations, and what a ForwardingBackend sees of an operation.
#include "axonn/compute/ops/operations.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/gpu_of_host_memory.h"

using namespace axonn;
using axonn::testing_support::GpuOfHostMemory;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::SizeIs;

namespace {

/// Calls f with an empty operation of each kind.
template <typename F>
void for_each_operation(F f) {
  [&]<typename... Operation>(std::type_identity<std::variant<Operation...>>) {
    (f(Operation{}), ...);
  }(std::type_identity<RowwiseOperation>{});
}

/// A view of memory that nothing reads.
View matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
  static int memory = 0;
  return {&memory, dtype, rows, cols, cols};
}

Recording::Compute recorded(const RowwiseOperation& operation) {
  Recording recording;
  make_dry_backend(&recording)->run(operation);
  return std::get<Recording::Compute>(recording.events.at(0));
}

/// A backend whose device claims to be a GPU.
class OnGpu final : public ForwardingBackend {
 public:
  OnGpu() : ForwardingBackend(make_cpu_backend(1)) {}
  Device& device() override { return device_; }
  Arena& arena() override { return arena_; }
  void on_host(const HostOperation& operation) override { Backend::on_host(operation); }

  GpuOfHostMemory device_{Memory::gpu};
  Arena arena_{device_};
};

/// to += from · 10, as a program's own operation.
HostOperation add_tens(const View& to, const View& from) {
  return {.name = "add_tens",
          .results = {to},
          .inputs = {from},
          .compute = [](std::span<const View> results, std::span<const View> inputs) {
            for (std::int64_t r = 0; r < results[0].rows; ++r)
              for (std::int64_t c = 0; c < results[0].cols; ++c)
                results[0].row<float>(r)[c] += 10 * inputs[0].row<float>(r)[c];
          }};
}

/// (2, 3) f32 with values[3 r + c], which need not lie in memory that the host may access.
Tensor tensor_of(Arena& arena, const std::vector<float>& values) {
  const Tensor tensor(arena, 2, 3, DType::f32);
  arena.device().copy_from_host(tensor.view().data, values.data(), tensor.bytes());
  return tensor;
}

std::vector<float> values_of(Device& device, const Tensor& tensor) {
  std::vector<float> values(tensor.count());
  device.copy_to_host(values.data(), tensor.view().data, tensor.bytes());
  return values;
}

}  // namespace

TEST(HostOperations, AreComputedInMemoryOfTheHostAndInCopiesOfThatOfAGpu) {
  const auto cpu = make_cpu_backend(1);
  OnGpu gpu;
  for (Backend* backend : {cpu.get(), static_cast<Backend*>(&gpu)}) {
    Arena arena(backend->device());
    const Tensor to = tensor_of(arena, {1, 2, 3, 4, 5, 6}),
                 from = tensor_of(arena, {1, 1, 1, 2, 2, 2});
    backend->on_host(add_tens(to.view(), from.view()));
    EXPECT_THAT(values_of(backend->device(), to), ElementsAre(11, 12, 13, 24, 25, 26));
    backend->on_host(add_tens(to.col_range(1, 2).view(), from.col_range(0, 2).view()));
    EXPECT_THAT(values_of(backend->device(), to), ElementsAre(11, 22, 23, 24, 45, 46));
    backend->on_host(add_tens(to.row_range(2, 0).view(), from.row_range(2, 0).view()));
  }
  EXPECT_GT(gpu.device_.copies(), 10);
}

TEST(HostOperations, AreCountedAndNotComputedWithoutValues) {
  Recording recording;
  const auto dry = make_dry_backend(&recording);
  dry->mark("h.0.scale");
  dry->on_host(add_tens(matrix(10, 20, DType::f32), matrix(10, 20, DType::bf16)));
  const auto& event = std::get<Recording::Compute>(recording.events.at(0));
  EXPECT_EQ(event.operation, "add_tens");
  EXPECT_EQ(event.layer, "h.0.scale");
  EXPECT_EQ(event.kind, OperationKind::rowwise);
  EXPECT_EQ(event.bytes(), 10 * 20 * (4 + 2));
}

TEST(HostOperations, AreNamedInTheErrorOfAWrongType) {
  const auto backend = make_cpu_backend(1);
  const auto error_of = [&](const HostOperation& operation) -> std::string {
    try {
      backend->on_host(operation);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(add_tens(matrix(1, 1, DType::bf16), matrix(1, 1, DType::f32))),
              testing::AllOf(HasSubstr("operation add_tens: operations_test.cpp:"),
                             HasSubstr("(1,1) bf16 are not f32")));
  EXPECT_EQ(error_of({.name = "nothing", .compute = {}}),
            "on_host: the operation 'nothing' has no function `compute`");
}

TEST(RowwiseOperations, HaveDifferentNamesUnderWhichTheyAreRecorded) {
  EXPECT_THAT(std::set(kRowwiseNames.begin(), kRowwiseNames.end()), SizeIs(kRowwiseNames.size()));
  std::vector<std::string> names;
  for_each_operation(
      [&](const auto& operation) { names.push_back(recorded(operation).operation); });
  EXPECT_THAT(names, ElementsAreArray(kRowwiseNames));
}

TEST(RowwiseOperations, MoveTheBytesOfTheirOperandsWithoutThoseLeftOut) {
  const View x = matrix(10, 20, DType::bf16), weight = matrix(1, 20, DType::f32),
             stats = matrix(10, 2, DType::f32);
  const auto norm = recorded(ops::LayerNorm{.out = x, .inp = x, .weight = weight, .stats = stats});
  EXPECT_EQ(norm.kind, OperationKind::rowwise);
  EXPECT_THAT(norm.operands, SizeIs(4)) << "no bias";
  EXPECT_EQ(norm.bytes(), 2 * 400 + 80 + 80);
}

TEST(RowwiseOperations, OfAnEmbeddingMoveAsManyRowsOfItsTableAsThereAreTokens) {
  const View out = matrix(100, 50, DType::bf16), ids = matrix(1, 100, DType::i32);
  const auto forward =
      recorded(ops::Embedding{.out = out, .ids = ids, .table = matrix(100000, 50, DType::bf16)});
  EXPECT_THAT(forward.operands, SizeIs(3));
  EXPECT_EQ(forward.bytes(), 2 * 100 * 50 * 2);
  const auto backward = recorded(
      ops::EmbeddingBackward{.d_table = matrix(100000, 50, DType::f32), .d_out = out, .ids = ids});
  EXPECT_EQ(backward.bytes(), 100 * 50 * (2 + 2 * 4));
}

TEST(AttentionFlops, AreThoseOfThePairsOfItsQueriesOrElseOfHalfThePositions) {
  const View q = matrix(128, 24, DType::bf16), k = matrix(512, 8, DType::bf16);
  Attention args{.q = q, .k = k, .v = k, .out = q, .positions = 512, .heads = 3, .head_dim = 8};
  const auto flops = [&] {
    Recording recording;
    const auto backend = make_dry_backend(&recording);
    backend->attention(args);
    backend->attention_backward({.forward = args, .d_out = q, .d_q = q, .d_k = k, .d_v = k});
    const auto of = [&](int i) {
      return std::get<Recording::Compute>(recording.events.at(i)).flops;
    };
    EXPECT_EQ(of(1), 2.5 * of(0));
    return of(0);
  };
  EXPECT_EQ(flops(), 2 * 128 * 512 * 24);
  const std::vector<std::int32_t> blocks{0, 3};
  args.query_blocks = matrix(1, 2, DType::i32);  // which a dry device cannot read
  args.pairs = attention_pairs(blocks);
  EXPECT_EQ(flops(), 4 * (64 * 32 + 64 * (192 + 32)) * 24);
}

TEST(RowwiseOperations, OfTheUpdateAreMarkedSo) {
  std::set<std::string> updates;
  for_each_operation([&](const auto& operation) {
    const Recording::Compute compute = recorded(operation);
    if (compute.kind == OperationKind::update) updates.insert(compute.operation);
  });
  EXPECT_THAT(updates, testing::ElementsAre("adafactor", "adafactor_squares", "adamw",
                                            "add_squares", "clamp", "clip_factor", "decode_dynamic",
                                            "divide_by_norm", "encode_dynamic", "largest_size",
                                            "lion", "momentum", "moving_average", "power_sum",
                                            "round_at_random", "schedule_free_adamw", "sgd",
                                            "squared_sum", "weighted_sum", "word_sums"));
}
