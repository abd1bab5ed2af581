// cuBLASLt of emulated GPUs: its products, and that it refuses what the library does not allow.
#include "tests/emulated_gpu/blas_test.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include <cublasLt.h>
#include <gtest/gtest.h>

#include "tests/emulated_gpu/setting.h"

extern "C" __attribute__((weak)) void __tsan_acquire(void* address);

using namespace blas_test;
using emulated_gpu::Setting;

namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

}  // namespace

TEST(EmulatedBlas, ComputesProductsOfAllOrientationsTypesAndSizes) {
  for (const auto& [type, out_type] :
       {std::pair(CUDA_R_32F, CUDA_R_32F), std::pair(CUDA_R_16BF, CUDA_R_16BF),
        std::pair(CUDA_R_16BF, CUDA_R_32F)})
    for (const int transposed : {0, 1, 2, 3})
      for (const std::int64_t gap : {0, 8})
        for (const int count : {1, 3})
          for (const Sizes& size : {Sizes{24, 16, 32}, Sizes{13, 9, 1}, Sizes{1, 1, 7}}) {
            Sizes s = size;
            s.a_transposed = transposed & 1, s.b_transposed = transposed & 2;
            s.type = type, s.out_type = out_type, s.gap = gap, s.count = count;
            Product product(s);
            ok(product.ask());
            product.alpha = 0.5;
            product.beta = 2;
            for (std::size_t i = 0; i < product.found.size(); ++i) {
              const auto old = product.result();
              ok(product.run(i));
              product.expect(product.reference(old));
              product.d->put(old, product.stream);
            }
          }
}

TEST(EmulatedBlas, DoesNotReadTheOldResultIfBetaIsZero) {
  Product product({});
  product.d->put(std::vector<float>(product.d->count(), NAN), product.stream);
  ok(product.ask());
  ok(product.run());
  product.expect(product.reference(product.result()));
}

TEST(EmulatedBlas, BitsDependOnTheAlgorithmOnlyOnRequest) {
  Product product({.m = 40, .n = 24, .k = 1000});
  ok(product.ask());
  ASSERT_EQ(product.found.size(), 3u);
  const auto results = [&] {
    std::vector<std::vector<float>> all;
    for (const std::size_t i : {0, 1, 2}) {
      ok(product.run(i));
      all.push_back(product.result());
    }
    return all;
  };
  const auto same = results();
  EXPECT_EQ(same[0], same[1]);
  EXPECT_EQ(same[0], same[2]);
  const Setting orders("AXONN_EMULATED_SUM_ORDERS", "1");
  const auto other = results();
  EXPECT_NE(other[0], other[1]);
  EXPECT_NE(other[0], other[2]);
  EXPECT_NE(other[1], other[2]);
  EXPECT_EQ(other, results());
}

TEST(EmulatedBlas, ComputesEpilogues) {
  for (const auto type : {CUDA_R_32F, CUDA_R_16BF})
    for (const auto epilogue :
         {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
          CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
      SCOPED_TRACE(testing::Message() << "epilogue " << epilogue << " type " << type);
      Product product({.m = 13, .n = 6, .k = 8, .type = type, .out_type = type});
      const Sizes& s = product.s;
      Memory bias(13, type), aux(16 * 6, type);
      std::vector<float> biases(13), inputs(16 * 6);
      for (std::size_t i = 0; i < biases.size(); ++i) biases[i] = static_cast<float>(i) / 4 - 1;
      for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(i) / 32 - 1;
      bias.put(biases, product.stream);
      aux.put(inputs, product.stream);
      product.set_epilogue(epilogue, bias.data(), aux.data());
      product.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
      ok(product.ask());
      for (std::size_t way = 0; way < product.found.size(); ++way) {
        auto want = product.reference(product.result());
        ok(product.run(way));
        const auto kept = aux.get(product.stream);
        for (std::int64_t j = 0; j < s.n; ++j)
          for (std::int64_t i = 0; i < 16; ++i) {
            const float at = kept[j * 16 + i];
            if (i >= s.m || (epilogue & 128) == 0 || epilogue == CUBLASLT_EPILOGUE_DGELU) {
              EXPECT_EQ(at, inputs[j * 16 + i]) << "must not be written";
            }
            if (i >= s.m) continue;
            double& x = want[product.at(0, i, j)];
            if (epilogue & CUBLASLT_EPILOGUE_BIAS) x += biases[i];
            if ((epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
              EXPECT_NEAR(at, x, product.tolerance());
            }
            if (epilogue & CUBLASLT_EPILOGUE_GELU) x = gelu(x);
            if (epilogue == CUBLASLT_EPILOGUE_DGELU) x *= gelu_slope(inputs[j * 16 + i]);
          }
        product.expect(want);
        aux.put(inputs, product.stream);
      }
    }
}

TEST(EmulatedBlas, SumsTheColumnsOfB) {
  for (const bool transposed : {false, true}) {
    Product product({.b_transposed = transposed, .type = CUDA_R_16BF});
    Memory sums(16, CUDA_R_32F);
    product.set_epilogue(CUBLASLT_EPILOGUE_BGRADB, sums.data());
    product.alpha = 3;  // not a factor of the sums
    ok(product.ask());
    const auto y = product.b->get(product.stream);
    for (std::size_t way = 0; way < product.found.size(); ++way) {
      ok(product.run(way));
      const auto got = sums.get(product.stream);
      for (std::size_t j = 0; j < 16; ++j) {
        double want = 0;
        for (std::size_t k = 0; k < 32; ++k) want += y[transposed ? k * 16 + j : j * 32 + k];
        EXPECT_NEAR(got[j], want, 1e-4);
      }
      sums.put(std::vector<float>(16, 0), product.stream);
    }
  }
}

TEST(EmulatedBlas, HasFewerAlgorithmsForOperandsThatAreNotAligned) {
  const auto ways = [](Product& product) {
    const auto status = product.ask();
    return status == kOk ? static_cast<int>(product.found.size()) : 0;
  };
  Product aligned({}), at_16({}, 16), at_4({}, 4), at_2({}, 2), rows({.m = 23});
  EXPECT_EQ(ways(aligned), 3);
  EXPECT_EQ(ways(at_16), 3);
  EXPECT_EQ(ways(at_4), 1);
  EXPECT_EQ(ways(at_2), 0) << "f32";
  EXPECT_EQ(ways(rows), 1) << "rows that do not begin at vectors";
  ok(at_4.run());
  at_4.expect(at_4.reference(at_4.result()));
  Product one_k({.k = 1, .b_transposed = true});
  EXPECT_EQ(ways(one_k), 2) << "nothing to split";
  aligned.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{64});
  EXPECT_EQ(ways(aligned), 2);
  for (const auto& way : aligned.found) EXPECT_LE(way.workspaceSize, 64u);
}

TEST(EmulatedBlas, RefusesOperandsLessAlignedThanTheHeuristicWasTold) {
  Product told({}), actual({}, 16);
  ok(told.ask());
  actual.found = told.found;
  EXPECT_EQ(actual.run(), kInvalid);
  EXPECT_EQ(actual.run(2), kInvalid);

  Memory bias(24 + 4, CUDA_R_32F);
  told.set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias.data());
  ok(told.ask());
  EXPECT_EQ(told.found.size(), 3u);
  told.set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias.data() + 16);
  EXPECT_EQ(told.run(), kInvalid);
  ok(told.ask());
  ok(told.run());
  told.set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias.data() + 4);
  ok(told.ask());
  EXPECT_EQ(told.found.size(), 1u);
  told.set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias.data() + 2);
  EXPECT_EQ(told.ask(), kInvalid);
}

TEST(EmulatedBlas, RefusesEpiloguesThatTheLibraryDoesNotHave) {
  Product product({.type = CUDA_R_16BF, .out_type = CUDA_R_16BF});
  Memory bias(24, CUDA_R_16BF), aux(24 * 16 + 8, CUDA_R_16BF);
  product.set_epilogue(CUBLASLT_EPILOGUE_GELU_AUX, nullptr, aux.data());
  EXPECT_EQ(product.ask(), kOk);
  product.set_epilogue(CUBLASLT_EPILOGUE_GELU_AUX, nullptr, aux.data() + 8);
  EXPECT_EQ(product.ask(), kUnsupported) << "not aligned to vectors";
  product.set_epilogue(CUBLASLT_EPILOGUE_DGELU, nullptr, nullptr);
  EXPECT_EQ(product.ask(), kInvalid) << "no auxiliary matrix";
  product.set_epilogue(CUBLASLT_EPILOGUE_DGELU, nullptr, aux.data());
  for (const std::int64_t step : {23, 16, 28}) {
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, step);
    EXPECT_EQ(product.ask(), kInvalid) << step;
  }
  product.set_epilogue(CUBLASLT_EPILOGUE_BIAS, nullptr);
  EXPECT_EQ(product.ask(), kInvalid) << "no bias";
  product.set_epilogue(CUBLASLT_EPILOGUE_BIAS, bias.data());
  EXPECT_EQ(product.ask(), kOk);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  EXPECT_EQ(product.ask(), kUnsupported) << "not the type of D";
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(2));
  EXPECT_EQ(product.ask(), kUnsupported) << "ReLU, which the project does not use";
}

TEST(EmulatedBlas, RefusesLayoutsThatDoNotFit) {
  const auto asks = [](const auto& spoil) {
    Product product({.count = 2});
    spoil(product);
    return product.ask();
  };
  const auto layout = [](cublasLtMatrixLayout_t& x, cudaDataType_t type, std::uint64_t rows,
                         std::uint64_t cols, std::int64_t step, int count = 2) {
    cublasLtMatrixLayoutDestroy(x);
    ok(cublasLtMatrixLayoutCreate(&x, type, rows, cols, step));
    const std::int64_t batch_step = step * static_cast<std::int64_t>(cols);
    ok(cublasLtMatrixLayoutSetAttribute(x, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, 4));
    ok(cublasLtMatrixLayoutSetAttribute(x, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_step,
                                        8));
  };
  constexpr auto kF32 = CUDA_R_32F;
  EXPECT_EQ(asks([&](Product&) {}), kOk);
  EXPECT_EQ(asks([&](Product& p) { layout(p.a_layout, kF32, 24, 32, 23); }), kInvalid) << "step";
  EXPECT_EQ(asks([&](Product& p) { layout(p.a_layout, kF32, 24, 31, 24); }), kInvalid) << "K";
  EXPECT_EQ(asks([&](Product& p) { layout(p.b_layout, kF32, 32, 15, 32); }), kInvalid) << "N";
  EXPECT_EQ(asks([&](Product& p) { layout(p.d_layout, kF32, 0, 16, 24); }), kInvalid) << "empty";
  EXPECT_EQ(asks([&](Product& p) { layout(p.b_layout, kF32, 32, 16, 32, 3); }), kInvalid)
      << "batch";
  EXPECT_EQ(asks([&](Product& p) { layout(p.b_layout, CUDA_R_16BF, 32, 16, 32); }), kUnsupported);
  EXPECT_EQ(asks([&](Product& p) { layout(p.d_layout, CUDA_R_16BF, 24, 16, 24); }), kUnsupported);
  const auto batch_step = [](cublasLtMatrixLayout_t x, std::int64_t step) {
    ok(cublasLtMatrixLayoutSetAttribute(x, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, 8));
  };
  EXPECT_EQ(asks([&](Product& p) { batch_step(p.a_layout, 0); }), kOk) << "the same A for all";
  EXPECT_EQ(asks([&](Product& p) { batch_step(p.d_layout, 24 * 15); }), kInvalid) << "overlap";
  EXPECT_EQ(asks([&](Product& p) {
              layout(p.d_layout, kF32, 24, 16, 48);
              batch_step(p.d_layout, 24);
            }),
            kOk)
      << "side by side";
}

TEST(EmulatedBlas, RefusesWrongArguments) {
  Product product({});
  ok(product.ask());
  const std::size_t split = product.found[0].workspaceSize > 0 ? 0 : 1;
  const auto run = [&](const void* a, void* workspace, std::size_t bytes,
                       const cublasLtMatmulAlgo_t* algo) {
    return cublasLtMatmul(product.handle, product.operation, &product.alpha, a, product.a_layout,
                          product.b->data(), product.b_layout, &product.beta, product.d->data(),
                          product.d_layout, product.d->data(), product.d_layout, algo, workspace,
                          bytes, product.stream);
  };
  char* space = product.workspace->data();
  const std::size_t bytes = product.workspace->bytes();
  const auto* algo = &product.found[split].algo;
  EXPECT_EQ(run(product.a->data(), space, bytes, algo), kOk);
  EXPECT_EQ(run(nullptr, space, bytes, algo), kInvalid);
  EXPECT_EQ(run(product.a->data(), nullptr, bytes, algo), kInvalid);
  EXPECT_EQ(run(product.a->data(), space + 8, bytes - 8, algo), kInvalid) << "not aligned";
  EXPECT_EQ(run(product.a->data(), space, 64, algo), kInvalid) << "too small";
  EXPECT_EQ(run(product.a->data(), nullptr, 0, &product.found[2].algo), kOk) << "needs none";
  EXPECT_EQ(run(product.a->data(), space, bytes, nullptr), kInvalid);
  const cublasLtMatmulAlgo_t none = {};
  EXPECT_EQ(run(product.a->data(), space, bytes, &none), kInvalid) << "not from the heuristic";
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  EXPECT_EQ(run(product.a->data(), space, bytes, algo), kInvalid);
  Product square({.m = 16, .n = 16, .k = 16});
  ok(square.ask());
  square.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  EXPECT_EQ(square.run(), kInvalid) << "found for another orientation";
  ok(cudaStreamSynchronize(product.stream));
}

TEST(EmulatedBlas, AttributesHaveASize) {
  Product product({});
  const std::int64_t value = 1;
  EXPECT_EQ(
      cublasLtMatmulDescSetAttribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, &value, 8),
      kInvalid);
  EXPECT_EQ(
      cublasLtMatmulDescSetAttribute(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4),
      kInvalid);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, &value, 4),
            kInvalid);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(product.a_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                             &value, 8),
            kInvalid);
  EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                product.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &value, 4),
            kInvalid);
  EXPECT_EQ(cublasLtDestroy(nullptr), kInvalid);
  EXPECT_EQ(cublasLtMatmulDescDestroy(nullptr), kOk);
}

TEST(EmulatedBlas, CopiesItsArguments) {
  Product product({});
  ok(product.ask());
  const auto want = product.reference(product.result());
  ok(product.run());
  product.alpha = 5;
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  cublasLtMatrixLayoutDestroy(product.a_layout);
  product.a_layout = nullptr;
  product.expect(want);
}

TEST(EmulatedBlas, RunsInGraphs) {
  Product product({});
  ok(product.ask());
  product.beta = 1;
  product.d->put(std::vector<float>(product.d->count(), 0), product.stream);
  ok(cudaStreamBeginCapture(product.stream, cudaStreamCaptureModeThreadLocal));
  ok(product.run());
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(product.stream, &graph));
  cudaGraphExec_t executable = nullptr;
  ok(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) ok(cudaGraphLaunch(executable, product.stream));
  auto want = product.reference(std::vector<float>(product.d->count(), 0));
  for (double& x : want) x *= 3;
  product.expect(want);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST(EmulatedBlas, AWorkspaceThatTwoStreamsShareSpoilsResults) {
  Product one({}), other({});
  ok(one.ask());
  ASSERT_GT(one.found[0].workspaceSize, 0u);
  ok(other.ask());
  other.alpha = 2;
  other.b->put(std::vector<float>(other.b->count(), 1), other.stream);
  const auto want = one.reference(one.result()), others = other.reference(other.result());
  const auto spoilt = [&] {
    int count = 0;
    for (int i = 0; i < 100; ++i) {
      ok(one.run());
      ok(other.run());
      const auto got = one.result(), gots = other.result();
      for (std::size_t k = 0; k < got.size(); ++k)
        if (std::abs(got[k] - want[k]) > 1e-3 || std::abs(gots[k] - others[k]) > 1e-3) {
          ++count;
          break;
        }
    }
    return count;
  };
  EXPECT_EQ(spoilt(), 0);
  if (__tsan_acquire) GTEST_SKIP() << "ThreadSanitizer reports the race that follows";
  other.workspace = one.workspace;
  EXPECT_GT(spoilt(), 0);
}

TEST(EmulatedBlas, RefusesACallOrEpiloguesOnRequest) {
  Product product({.type = CUDA_R_16BF, .out_type = CUDA_R_16BF});
  ok(product.ask());
  emulated_gpu::fail_call("cublasLtMatmul", 2);
  ok(product.run());
  EXPECT_EQ(product.run(), kUnsupported);
  ok(product.run());
  emulated_gpu::fail_call("cublasLtMatmulAlgoGetHeuristic", 1);
  EXPECT_EQ(product.ask(), kUnsupported);
  ok(product.ask());
  product.set_epilogue(CUBLASLT_EPILOGUE_GELU, nullptr);
  {
    const Setting none("AXONN_EMULATED_EPILOGUES", "unknown");
    EXPECT_EQ(product.ask(), kUnsupported);
  }
  ok(product.ask());
  const Setting none("AXONN_EMULATED_EPILOGUES", "refused");
  ok(product.ask());
  EXPECT_EQ(product.run(), kUnsupported);
  cublasLtMatmulDesc_t operation = nullptr;
  emulated_gpu::fail_call("cublasLtMatmulDescCreate", 1);
  EXPECT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_ALLOC_FAILED);
}

TEST(EmulatedBlasDeathTest, EndsTheProgramThatBreaksRules) {
  Product product({.m = 32, .n = 32, .k = 32});
  ok(product.ask());
  EXPECT_DEATH(
      {
        cublasLtMatrixLayoutDestroy(product.a_layout);
        product.run();
      },
      "cublasLtMatmul: a handle or descriptor that was destroyed");
  EXPECT_DEATH(
      {
        cublasLtMatmulDescDestroy(product.operation);
        cublasLtMatmulDescDestroy(product.operation);
      },
      "cublasLtMatmulDescDestroy: a handle or descriptor that was destroyed");
  EXPECT_DEATH(
      {
        cudaSetDevice(1);
        product.run();
      },
      "handle of GPU 0, stream of GPU 0, GPU 1 is current");
  EXPECT_DEATH(
      {
        product.d = std::make_unique<Memory>(31, CUDA_R_32F);
        product.run();
        cudaStreamSynchronize(product.stream);
      },
      "cublasLtMatmul's D");
  EXPECT_DEATH(
      {
        product.d.swap(product.a);
        product.a = std::make_unique<Memory>(32, CUDA_R_32F);
        cublasLtMatmul(product.handle, product.operation, &product.alpha, product.d->data(),
                       product.a_layout, product.b->data(), product.b_layout, &product.beta,
                       product.d->data(), product.d_layout, product.d->data(), product.d_layout,
                       &product.found[0].algo, product.workspace->data(),
                       product.workspace->bytes(), product.stream);
      },
      "D overlaps A or B");
}
