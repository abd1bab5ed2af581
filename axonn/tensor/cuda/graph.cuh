#pragma once

#include <utility>

#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

/// The work captured from a stream, ready to be launched on the same stream.
class CudaGraph final : public Graph {
 public:
  /// Captures the stream while `work` runs; ends the capture also if `work` throws. The capture
  /// mode is relaxed, so that `work` may allocate device memory if the arena has to grow.
  static std::unique_ptr<Graph> of(const CudaStream& stream, const std::function<void()>& work) {
    check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed));
    Captured captured{stream.handle()};
    work();
    return std::make_unique<CudaGraph>(stream, captured.end());
  }

  /// Takes ownership of the captured graph.
  CudaGraph(const CudaStream& stream, cudaGraph_t captured) : stream_(stream) {
    // Keeps the priorities of the captured streams: other ranks wait for the work on some of them.
    const cudaError_t status =
        cudaGraphInstantiateWithFlags(&graph_, captured, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(captured);
    check(status);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }

  void launch() override { check(cudaGraphLaunch(graph_, stream_.handle())); }

 private:
  /// Ends a capture that has begun.
  struct Captured {
    cudaStream_t stream;

    ~Captured() {
      cudaGraph_t graph = nullptr;
      if (!stream) return;
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      cudaGetLastError();  // the exception being thrown says more
    }
    cudaGraph_t end() {
      cudaGraph_t graph = nullptr;
      check(cudaStreamEndCapture(std::exchange(stream, nullptr), &graph));
      return graph;
    }
  };

  const CudaStream& stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace axonn::cuda
