#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/tensor.h"

/// A backend on GPU 0, and matrices of small values in its memory.
class ValuesOnGpu {
 public:
  ValuesOnGpu() : backend(axonn::make_cuda_backend(0, {.attention = axonn::CudaAttention::own})) {}

  /// Values of at most 1. Their sums are exact in f32 if the period is a power of two.
  axonn::View filled(std::int64_t rows, std::int64_t cols, axonn::DType type, int period = 64) {
    const axonn::Tensor values(arena_, rows, cols, axonn::DType::f32);
    std::vector<float> host;
    for (std::int64_t i = 0; i < values.count(); ++i)
      host.push_back(static_cast<float>(i * 29 % period) / static_cast<float>(period) - 0.5f);
    backend->device().copy_from_host(values.view().data, host.data(), values.bytes());
    const axonn::Tensor& made = tensors_.emplace_back(arena_, rows, cols, type);
    backend->run(axonn::ops::Cast{made.view(), values.view()});
    return made.view();
  }

  std::vector<float> get(const axonn::View& view) {
    if (!view.data) return {};
    const axonn::Tensor values(arena_, view.rows, view.cols, axonn::DType::f32);
    backend->run(axonn::ops::Cast{values.view(), view});
    std::vector<float> host(static_cast<std::size_t>(view.count()));
    backend->device().copy_to_host(host.data(), values.view().data, values.bytes());
    return host;
  }

  const std::unique_ptr<axonn::Backend> backend;

 private:
  axonn::Arena arena_{backend->device()};
  std::vector<axonn::Tensor> tensors_;
};
