// The ways of products on a GPU: algorithms by their configuration, and how often the library's
// heuristic is asked.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/emulated_gpu/setting.h"
#include "tests/emulated_gpu/values_on_gpu.h"

using namespace axonn;
using emulated_gpu::Setting;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

constexpr const char* kVectors =
    "algorithm 1 tile 20 stages 15 split 1 reduction 0 swizzle 0 custom 0 inner 0 cluster 3";
constexpr const char* kSplit =
    "algorithm 1 tile 20 stages 15 split 2 reduction 2 swizzle 0 custom 0 inner 0 cluster 3";
constexpr const char* kElements =
    "algorithm 7 tile 20 stages 0 split 1 reduction 0 swizzle 0 custom 0 inner 0 cluster 0";

constexpr int kPeriod = 61;  // so that the order of a sum shows

/// A product of 16 x 24 x 512.
class TunedProduct : public ValuesOnGpu, public testing::Test {
 protected:
  Matmul product() {
    return {.out = filled(16, 24, DType::f32, kPeriod),
            .a = filled(16, 512, DType::f32, kPeriod),
            .b = filled(512, 24, DType::f32, kPeriod)};
  }
  /// The same with rows of b that do not begin at vectors.
  Matmul uneven() {
    Matmul args = product();
    const View wide = filled(512, 25, DType::f32, kPeriod);
    backend->run(ops::Cast{wide.col_range(0, 24), args.b});
    args.b = wide.col_range(0, 24);
    return args;
  }
  std::vector<float> result(const Matmul& args) {
    backend->matmul(args);
    return get(args.out);
  }
  static std::int64_t asked() { return emulated_gpu::calls()["cublasLtMatmulAlgoGetHeuristic"]; }
};

}  // namespace

TEST_F(TunedProduct, IsAnAlgorithmByItsConfiguration) {
  const MatmulShape shape = shape_of(product());
  EXPECT_THAT(backend->matmul_ways(shape), ElementsAre("default", kVectors, kElements));
  const Setting orders("AXONN_EMULATED_SUM_ORDERS", "1");
  const std::vector<float> split = result(product());
  for (const char* const way : {kVectors, kElements}) {
    ASSERT_TRUE(backend->set_matmul_way(shape, way));
    EXPECT_NE(result(product()), split) << way;
  }
  ASSERT_TRUE(backend->set_matmul_way(shape, kSplit)) << "the default's name";
  EXPECT_EQ(result(product()), split);
  ASSERT_TRUE(backend->set_matmul_way(shape, "default"));
  EXPECT_EQ(result(product()), split);
  EXPECT_THAT(backend->take_remarks(), IsEmpty());
}

TEST_F(TunedProduct, IsTheSameAlgorithmForOtherStrides) {
  const Setting orders("AXONN_EMULATED_SUM_ORDERS", "1");
  const Matmul args = product();
  ASSERT_TRUE(backend->set_matmul_way(shape_of(args), kVectors));
  const std::vector<float> want = result(args);
  Matmul apart = args;
  const View wide = filled(16, 1024, DType::f32, kPeriod);
  backend->run(ops::Cast{wide.col_range(0, 512), args.a});
  apart.a = wide.col_range(0, 512);
  EXPECT_EQ(result(apart), want);
}

TEST_F(TunedProduct, OfAnotherGpuOrOfAnEarlierFormIsNoWay) {
  const MatmulShape shape = shape_of(product());
  std::string of_other;
  {
    const Setting other("AXONN_EMULATED_ALGORITHMS", "of another GPU");
    of_other = ValuesOnGpu().backend->matmul_ways(shape).back();
  }
  EXPECT_THAT(of_other, HasSubstr("tile 21"));
  const std::string split = kSplit;
  for (const std::string& way :
       {of_other, std::string("heuristic 2"), std::string("algorithm 1"), std::string(),
        split + " 1", split.substr(0, split.size() - 1) + "-3", " " + split})
    EXPECT_FALSE(backend->set_matmul_way(shape, way)) << way;
}

TEST_F(TunedProduct, ThatDoesNotComputeTheOperandsOfACallIsTheDefaultWithARemark) {
  const std::vector<float> by_default = result(uneven());
  ASSERT_TRUE(backend->set_matmul_way(shape_of(product()), kSplit));
  EXPECT_EQ(result(uneven()), by_default);
  EXPECT_THAT(
      backend->take_remarks(),
      ElementsAre(HasSubstr("cuBLASLt does not compute f32 NN 16x24x512 as 'algorithm 1 ")));
  EXPECT_EQ(result(uneven()), by_default);
  EXPECT_THAT(backend->take_remarks(), IsEmpty());
}

TEST_F(TunedProduct, ThatIsRefusedWhenItRunsIsTheDefaultWithARemark) {
  Matmul args = product();
  const std::vector<float> want = result(args);
  const View wide = filled(17, 512, DType::f32, kPeriod);  // begins at a multiple of 4 bytes
  const View shifted{static_cast<float*>(wide.data) + 1, DType::f32, 16, 512, 512};
  backend->run(ops::Cast{shifted, args.a});
  args.a = shifted;
  ASSERT_TRUE(backend->set_matmul_way(shape_of(args), kVectors));
  EXPECT_EQ(result(args), want);
  EXPECT_THAT(backend->take_remarks(), ElementsAre(HasSubstr("computed in the default way")));
}

TEST_F(TunedProduct, OperandsAlignedTo16BytesOrMoreAskTheHeuristicOnce) {
  Matmul args = product();
  const View room = filled(17, 512, DType::f32, kPeriod);
  backend->matmul(args);
  const std::int64_t before = asked();
  for (const int elements : {4, 8, 16, 32, 64}) {
    args.a = {static_cast<float*>(room.data) + elements, DType::f32, 16, 512, 512};
    backend->matmul(args);
  }
  EXPECT_EQ(asked(), before);
  args.a = {static_cast<float*>(room.data) + 2, DType::f32, 16, 512, 512};
  backend->matmul(args);
  EXPECT_EQ(asked(), before + 1);
}

TEST_F(TunedProduct, OfExpertsAsksTheHeuristicOnceForEvery64Rows) {
  const Setting any("AXONN_EMULATED_ALGORITHMS", "for any size");
  const View out = filled(200, 24, DType::bf16), a = filled(200, 32, DType::bf16),
             b = filled(32, 24, DType::bf16), of_weights = filled(32, 24, DType::f32);
  const auto multiply = [&](std::int64_t rows) {
    backend->matmuls(
        std::vector{Matmul{.out = out.row_range(0, rows), .a = a.row_range(0, rows), .b = b}});
    backend->matmuls(std::vector{Matmul{.out = of_weights,
                                        .a = a.row_range(0, rows),
                                        .b = out.row_range(0, rows),
                                        .a_transposed = true}});
  };
  const auto layouts = [] { return emulated_gpu::calls()["cublasLtMatrixLayoutCreate"]; };
  const std::int64_t before = asked(), made = layouts();
  for (std::int64_t rows = 2; rows <= 200; ++rows) multiply(rows);  // one K cannot be split
  EXPECT_EQ(asked(), before + 2 * 4);
  EXPECT_EQ(layouts(), made + std::int64_t{2} * 4 * 6) << "three to ask with, three to multiply";
  backend->device().compute().synchronize();
}

TEST_F(TunedProduct, OfExpertsAsksForItsRowsIfTheAlgorithmDoesNotComputeThem) {
  const View out = filled(64, 24, DType::bf16), a = filled(64, 32, DType::bf16),
             b = filled(32, 24, DType::bf16);
  const std::int64_t before = asked();
  for (const std::int64_t rows : {30, 31, 30, 64})
    backend->matmuls(
        std::vector{Matmul{.out = out.row_range(0, rows), .a = a.row_range(0, rows), .b = b}});
  EXPECT_EQ(asked(), before + 3) << "for 64 rows, 30 and 31";
  backend->device().compute().synchronize();
}

TEST_F(TunedProduct, LeavesTheMultiprocessorsThatAreLent) {
  const auto with = [](int multiprocessors) {
    return emulated_gpu::products_by_multiprocessors()[multiprocessors];
  };
  const Matmul args = product();
  const std::vector<float> want = result(args);
  const std::int64_t of_all = with(0), of_three = with(3), of_one = with(1);
  backend->device().lend(1);
  EXPECT_EQ(result(args), want);
  backend->device().lend(8);  // more than the four of an emulated GPU
  EXPECT_EQ(result(args), want);
  backend->device().lend(-9);
  EXPECT_EQ(result(args), want);
  EXPECT_EQ(with(3), of_three + 1);
  EXPECT_EQ(with(1), of_one + 1);
  EXPECT_EQ(with(0), of_all + 1);
}
