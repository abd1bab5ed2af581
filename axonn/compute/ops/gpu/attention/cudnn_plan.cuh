#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cudnn_graph.h>

#include "axonn/compute/ops/gpu/attention/attention_graph.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

/// Throws Error, with cuDNN's message, unless a call of cuDNN succeeded.
void check(cudnnStatus_t status, Where where = Where::here());

/// Owns a cuDNN descriptor. Descriptors that it refers to must outlive it.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& from) noexcept : handle_(std::exchange(from.handle_, {})) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& from) noexcept {
    std::swap(handle_, from.handle_);
    return *this;
  }
  ~CudnnDescriptor();

  /// Sets several values of one attribute.
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<T> values) {
    check(cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(values.size()),
                                   values.data()));
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    check(cudnnBackendSetAttribute(handle_, name, type, 1, &value));
  }
  void set(cudnnBackendAttributeName_t name, std::int64_t value) {
    set(name, CUDNN_TYPE_INT64, value);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.handle_);
  }
  void finalize() { check(cudnnBackendFinalize(handle_)); }
  /// Returns the status instead of throwing, for descriptors that cuDNN may refuse.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// The GPU that plans are for: that of a handle, or an absent one that has these properties.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

/// The properties of a GPU, from JSON in cuDNN's format. With them plans can be built, but not run,
/// without that GPU. Throws Error if cuDNN misses a property.
CudnnDescriptor cudnn_gpu(const std::string& json);

/// The order of sums that a plan ensures.
enum class PlanKind {
  any,      ///< none, for graphs of gradients that are not AttentionGraphShape::ordered
  fixed,    ///< that of the graph: engines that cuDNN marks as nondeterministic are skipped
  ordered,  ///< a fixed one, by an option of the engine, for the same graphs as `any`
};

/// cuDNN's kernel for a graph: the first engine configuration of heuristic mode A that finalizes.
class CudnnPlan {
 public:
  /// Returns nothing if no engine supports the graph in that kind; *why is then cuDNN's reason.
  /// (cuDNN marks no engine for attention as nondeterministic, whatever the graph.)
  ///
  /// Compiles a kernel, which takes about half a second. Throws Error if the graph is malformed.
  static std::optional<CudnnPlan> build(const AttentionGraph& graph, const CudnnTarget& target,
                                        PlanKind kind, std::string* why);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }

  /// memory[i] is the address of tensor i of the graph: on the GPU, or on the host for numbers;
  /// null for intermediate results. Does not wait for the GPU.
  void run(cudnnHandle_t handle, std::span<void* const> memory, void* workspace) const;

 private:
  CudnnPlan() = default;

  std::vector<CudnnDescriptor> parts_;  // all descriptors of the plan, which is the last
  std::int64_t workspace_bytes_ = 0;
};

}  // namespace axonn::cuda
