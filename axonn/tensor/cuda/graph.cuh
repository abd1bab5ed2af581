#pragma once

#include <utility>

#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

/// What a stream was given while it was captured, ready to be launched on it.
class CudaGraph final : public Graph {
 public:
  /// Begins to capture the stream, calls work and ends it, whatever work throws. `work` may take
  /// memory of the card meanwhile: the capture is relaxed, since an arena may have to grow.
  static std::unique_ptr<Graph> of(const CudaStream& stream, const std::function<void()>& work) {
    check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed));
    Captured captured{stream.handle()};
    work();
    return std::make_unique<CudaGraph>(stream, captured.end());
  }

  /// Takes the captured graph.
  CudaGraph(const CudaStream& stream, cudaGraph_t captured) : stream_(stream) {
    // What others wait for goes first, as on the streams that it was captured from.
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
  /// A capture that has begun and has to be ended.
  struct Captured {
    cudaStream_t stream;

    ~Captured() {
      cudaGraph_t graph = nullptr;
      if (!stream) return;
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      cudaGetLastError();  // the error that is on its way says more
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
