// The backend for tests of operations on a GPU, by this project's kernels and cuBLASLt;
// cudnn_attention_test.cpp tests cuDNN. Operands are in pinned host memory, which kernels access
// directly, so that no test needs to copy. The backend waits for every operation.
#include "tests/ops/on_cuda.h"

#include <string>

#include <gtest/gtest.h>

#include "axonn/ops/backend.h"
#include "axonn/ops/forwarding_backend.h"
#include "axonn/tensor/cuda/cuda_device.h"
#include "axonn/tensor/cuda/runtime.cuh"

#include "tests/ops/operand_memory.h"

namespace axonn {

namespace {

class WaitingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

 protected:
  void around(const OperationCall&, const std::function<void()>& run) override {
    run();
    device().compute().synchronize();
  }
};

/// Skips every test if there is no GPU, and says why.
class NeedsGpu final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    if (!trouble_.empty()) GTEST_SKIP() << trouble_;
  }

 private:
  std::string trouble_ = cuda_status().trouble;
};

[[maybe_unused]] const bool kNeedsGpu = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
  return true;
}();

}  // namespace

std::unique_ptr<Backend> test_cuda_backend(const CudaOptions& options) {
  return std::make_unique<WaitingBackend>(make_cuda_backend(0, options));
}

std::unique_ptr<Backend> test_backend() {
  return test_cuda_backend({.attention = CudaAttention::own});
}

void* allocate_operand(std::size_t bytes) {
  void* memory = nullptr;
  cuda::check(cudaMallocHost(&memory, bytes));
  return memory;
}

void release_operand(void* memory) noexcept { cudaFreeHost(memory); }

}  // namespace axonn
