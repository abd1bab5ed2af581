// The backend for tests of operations on a GPU, by this project's kernels and cuBLASLt;
// cudnn_attention_test.cpp tests cuDNN. Operands are in the GPU's memory, each its own allocation,
// so that what finds accesses outside an allocation finds those outside an operand. The backend
// waits for every operation.
#include "tests/compute/ops/on_cuda.h"

#include <string>

#include <gtest/gtest.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"

#include "tests/compute/ops/operand_memory.h"
#include "tests/support/needs_gpu.h"

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

/// Skips every test if there is no GPU, or fails it, and says why.
class NeedsGpu final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    if (!trouble_.empty()) test::skip_without_gpu(trouble_);
  }

 private:
  std::string trouble_ = cuda_status().trouble;
};

[[maybe_unused]] const bool kNeedsGpu = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new NeedsGpu);
  return true;
}();

/// Never destroyed, because operands may be static.
Device& operands() {
  static Device& device = *make_cuda_device(0).release();
  return device;
}

}  // namespace

std::unique_ptr<Backend> test_cuda_backend(const CudaOptions& options) {
  return std::make_unique<WaitingBackend>(make_cuda_backend(0, options));
}

std::unique_ptr<Backend> test_backend(int) {
  return test_cuda_backend({.attention = CudaAttention::own});
}

Memory memory_of_operands() { return operands().memory(); }

void* allocate_operand(std::int64_t bytes) { return operands().allocate(bytes); }

void release_operand(void* memory, std::int64_t bytes) noexcept {
  operands().release(memory, bytes);
}

void write_operand(void* to, const void* host, std::int64_t bytes) {
  operands().copy_from_host(to, host, bytes);
  operands().compute().synchronize();
}

void read_operand(void* host, const void* from, std::int64_t bytes) {
  operands().copy_to_host(host, from, bytes);
}

}  // namespace axonn
