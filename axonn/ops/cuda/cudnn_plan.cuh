#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cudnn_graph.h>

#include "axonn/base/check.h"
#include "axonn/ops/attention_graph.h"

namespace axonn::cuda {

/// Throws Error, with cuDNN's own words, unless a call of cuDNN succeeded.
void check(cudnnStatus_t status, Where where = Where::here());

/// Owns one of cuDNN's descriptors. What it was made of must outlive it.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& from) noexcept : handle_(std::exchange(from.handle_, {})) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& from) noexcept {
    std::swap(handle_, from.handle_);
    return *this;
  }
  ~CudnnDescriptor();

  /// Any number of values of one attribute.
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
  /// How it went, for what may be refused.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

/// Where plans shall run: on the card of a handle, or on a card that is not here and has these
/// properties.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

/// The properties of a card, from the JSON that cuDNN writes of it: its plans can be built, not
/// run, where no card is. Errors: Error where cuDNN lacks a property.
CudnnDescriptor cudnn_card(const std::string& json);

/// A graph as cuDNN's kernel computes it: the first of heuristic mode A's that is finalized.
class CudnnPlan {
 public:
  /// None where no engine takes the graph; *why says what cuDNN said. deterministic: engines that
  /// cuDNN notes as nondeterministic are left out. (It notes none of attention's, whatever the
  /// graph has them do: AttentionGraphShape::ordered sees to the order of sums.)
  ///
  /// Compiles a kernel: about half a second. Errors: Error where the graph is none.
  static std::optional<CudnnPlan> build(const AttentionGraph& graph, const CudnnTarget& target,
                                        bool deterministic, std::string* why);

  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// "engine 6".
  const std::string& engine() const { return engine_; }

  /// memory[i] is where tensor i of the graph lies: on the card, or on the host for numbers; null
  /// for what lies inside. Does not wait.
  void run(cudnnHandle_t handle, std::span<void* const> memory, void* workspace) const;

 private:
  CudnnPlan() = default;

  std::vector<CudnnDescriptor> parts_;  // of which the plan, the last of them, was made
  std::int64_t workspace_bytes_ = 0;
  std::string engine_;
};

}  // namespace axonn::cuda
