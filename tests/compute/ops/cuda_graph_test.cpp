// CUDA graphs: capture and launch on the GPU's memory, with a second stream, and refused captures.
#include <array>
#include <cstring>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Four floats on the GPU.
class Four {
 public:
  Four(Device& device, std::array<float, 4> values) : device_(device) {
    device.copy_from_host(memory_, values.data(), sizeof values);
  }
  Four(const Four&) = delete;
  Four& operator=(const Four&) = delete;
  ~Four() { device_.release(memory_, kBytes); }

  View view() const { return {memory_, DType::f32, 1, 4, 4}; }
  std::array<float, 4> values() const {
    std::array<float, 4> host{};
    device_.copy_to_host(host.data(), memory_, sizeof host);
    return host;
  }

  static constexpr std::int64_t kBytes = 4096;

 private:
  Device& device_;
  void* memory_ = device_.allocate(kBytes);
};

}  // namespace

TEST(CudaGraph, RunsNothingDuringCaptureAndEverythingAtEachLaunch) {
  const auto backend = make_cuda_backend(0);
  Device& device = backend->device();
  const Four a(device, {1, 2, 3, 4}), sum(device, {0, 0, 0, 0}), copied(device, {0, 0, 0, 0});
  const auto other = device.make_stream(StreamPriority::normal);
  const auto graph = device.capture([&] {
    EXPECT_TRUE(device.capturing());
    backend->run(ops::Add{sum.view(), sum.view(), a.view()});
    other->wait(*device.compute().record());  // fork to the other stream, then join back
    device.compute().wait(*other->record());
    device.copy(copied.view().data, sum.view().data, 16);
  });
  EXPECT_FALSE(device.capturing());
  EXPECT_THAT(sum.values(), ElementsAre(0, 0, 0, 0));
  for (int i = 0; i < 3; ++i) graph->launch();
  EXPECT_THAT(sum.values(), ElementsAre(3, 6, 9, 12));
  EXPECT_THAT(copied.values(), ElementsAre(3, 6, 9, 12));
}

TEST(CudaGraph, RefusesCopiesToTheHostAndTheDeviceStillWorks) {
  const auto backend = make_cuda_backend(0);
  Device& device = backend->device();
  const Four a(device, {1, 2, 3, 4});
  EXPECT_THAT([&] { device.capture([&] { a.values(); }); },
              ThrowsMessage<Error>(HasSubstr("copy_to_host while work is captured")));
  EXPECT_THAT(a.values(), ElementsAre(1, 2, 3, 4));
  device.capture([&] { backend->run(ops::Add{a.view(), a.view(), a.view()}); })->launch();
  EXPECT_THAT(a.values(), ElementsAre(2, 4, 6, 8));
}

TEST(CudaGraph, RefusesAStreamThatIsNotWaitedForBeforeTheCaptureEnds) {
  const auto backend = make_cuda_backend(0);
  Device& device = backend->device();
  const auto other = device.make_stream(StreamPriority::normal);
  const Four a(device, {1, 2, 3, 4});
  const auto work_elsewhere = [&] {
    other->wait(*device.compute().record());
    cuda::check("cudaMemsetAsync",
                cudaMemsetAsync(a.view().data, 0, Four::kBytes, cuda::handle_of(*other)));
  };
  EXPECT_THROW(device.capture(work_elsewhere), Error);
}
