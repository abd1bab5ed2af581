#include "axonn/compute/tensor/tensor.h"

#include <functional>
#include <numeric>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

/// A collective that finishes when it is waited for, and then calls a function.
class LateState : public Work::State {
 public:
  explicit LateState(std::function<void()> then) : then_(std::move(then)) {}
  void wait() override {
    std::exchange(then_, [] {})();
  }
  bool done() override { return false; }

 private:
  std::function<void()> then_;
};

Work late(std::function<void()> then) { return Work(std::make_shared<LateState>(std::move(then))); }

class TensorTest : public testing::Test {
 protected:
  /// (rows, cols) f32 with elements 0, 1, 2, ...
  Tensor counting(std::int64_t rows, std::int64_t cols) {
    Tensor tensor(arena_, rows, cols, DType::f32);
    std::iota(tensor.view().as<float>(), tensor.view().as<float>() + rows * cols, 0.f);
    return tensor;
  }
  std::string error_of(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  Arena arena_{*device_};
};

}  // namespace

TEST_F(TensorTest, ViewWaitsForPendingWorkAndRawViewDoesNot) {
  Tensor tensor(arena_, 1, 4, DType::f32);
  int waits = 0;
  tensor.set_pending(late([&] { ++waits; }));
  tensor.raw_view();
  EXPECT_EQ(waits, 0);
  tensor.view();
  EXPECT_EQ(waits, 1);
  tensor.view();
  EXPECT_EQ(waits, 1);
}

TEST_F(TensorTest, PartsAndCopiesWaitForTheSameWork) {
  Tensor tensor(arena_, 4, 4, DType::f32);
  const Tensor copy = tensor, rows = tensor.row_range(1, 2), flat = tensor.reshape(1, 16);
  for (const Tensor& part : {copy, rows, flat}) {
    int waits = 0;
    tensor.set_pending(late([&] { ++waits; }));
    part.view();
    EXPECT_EQ(waits, 1);
    tensor.view();
    EXPECT_EQ(waits, 1) << "it was done already";
  }
}

TEST_F(TensorTest, WaitsForAnEarlierWorkBeforeItStoresALaterOne) {
  Tensor tensor(arena_, 1, 4, DType::f32);
  std::vector<int> order;
  tensor.set_pending(late([&] { order.push_back(1); }));
  tensor.set_pending(late([&] { order.push_back(2); }));
  EXPECT_THAT(order, testing::ElementsAre(1));
  tensor.wait();
  EXPECT_THAT(order, testing::ElementsAre(1, 2));
}

TEST_F(TensorTest, IsNotFreedWhileACollectiveMayWriteToIt) {
  std::int64_t live = -1;
  {
    Tensor tensor(arena_, 1, 16, DType::f32);
    tensor.set_pending(late([&] { live = arena_.stats().live_bytes; }));
  }
  EXPECT_EQ(live, 64) << "the wait came after the release, or never";
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}

TEST_F(TensorTest, IsFreedWithItsLastCopyOrPart) {
  Tensor part;
  {
    const Tensor whole = counting(4, 4);
    EXPECT_TRUE(whole.unique());
    part = whole.col_range(2, 2);
    EXPECT_FALSE(whole.unique());
  }
  EXPECT_TRUE(part.unique());
  EXPECT_EQ(arena_.stats().live_bytes, 64);
  part = Tensor();
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}

TEST_F(TensorTest, PartsShareTheStorageAndKeepTheStride) {
  const Tensor tensor = counting(4, 6);
  const View rows = tensor.row_range(1, 2).view(), cols = tensor.col_range(2, 3).view(),
             both = tensor.col_range(2, 3).row_range(1, 2).view();
  EXPECT_EQ(rows.row<float>(0)[0], 6);
  EXPECT_TRUE(rows.contiguous());
  EXPECT_EQ(cols.row<float>(1)[0], 8);
  EXPECT_EQ(cols.stride, 6);
  EXPECT_FALSE(cols.contiguous());
  EXPECT_EQ(both.row<float>(1)[2], 16);
  EXPECT_EQ(both.count(), 6);
  both.row<float>(1)[2] = -1;
  EXPECT_EQ(tensor.view().as<float>()[16], -1);
}

TEST_F(TensorTest, PartsMayBeEmptyOrWholeButNotOutOfBounds) {
  const Tensor tensor = counting(4, 6);
  EXPECT_EQ(tensor.row_range(4, 0).count(), 0);
  EXPECT_EQ(tensor.col_range(0, 6).count(), 24);
  EXPECT_EQ(error_of([&] { tensor.row_range(2, 3); }), "invalid rows [2,5) of (4,6) f32");
  EXPECT_EQ(error_of([&] { tensor.col_range(-1, 2); }), "invalid columns [-1,1) of (4,6) f32");
  EXPECT_THAT(error_of([&] { tensor.row_range(1, -1); }), HasSubstr("rows [1,0)"));
}

TEST_F(TensorTest, ReshapeKeepsTheElementsAndRefusesAnotherCountOrAColumnRange) {
  const Tensor tensor = counting(4, 6);
  const View wide = tensor.reshape(2, 12).view();
  EXPECT_EQ(wide.row<float>(1)[0], 12);
  EXPECT_EQ(error_of([&] { tensor.reshape(5, 5); }),
            "reshape needs a contiguous tensor and an equal count; got (4,6) f32 to (5,5)");
  EXPECT_EQ(error_of([&] { tensor.col_range(0, 3).reshape(3, 4); }),
            "reshape needs a contiguous tensor and an equal count; got (4,3) f32 to (3,4)");
}

TEST_F(TensorTest, ElementsAreReadAsTheirTypeAlone) {
  const Tensor words(arena_, 2, 4, DType::bf16), empty;
  EXPECT_THAT(error_of([&] { words.view().row<float>(1); }),
              AllOf(StartsWith("tensor_test.cpp:"), HasSubstr("(2,4) bf16 are not f32"),
                    HasSubstr("get() and put()")));
  EXPECT_THAT(error_of([&] { counting(1, 2).view().as<std::int32_t>(); }),
              HasSubstr("(1,2) f32 are not i32"));
  EXPECT_THAT(error_of([&] { words.view().row<bf16>(2); }), HasSubstr("(2,4) bf16 has no row 2"));
  EXPECT_THAT(error_of([&] { words.view().row<bf16>(-1); }), HasSubstr("has no row -1"));
  EXPECT_EQ(words.view().row<const bf16>(1), words.view().as<bf16>() + 4);
  EXPECT_EQ(empty.view().as<std::int32_t>(), nullptr);
}

TEST_F(TensorTest, ElementsThatTheHostCannotAccessAreNotRead) {
  const auto dry = make_dry_device();
  Arena nowhere(*dry);
  const Tensor tensor(nowhere, 4, 6, DType::f32);
  const std::vector<View> views{tensor.view(), tensor.reshape(6, 4).view(), tensor.raw_view(),
                                tensor.row_range(1, 2).view(), tensor.view().col_range(2, 3)};
  for (const View& view : views)
    EXPECT_THAT(error_of([&] { view.row<float>(0); }),
                AllOf(HasSubstr("do not exist: dry runs, plans"), HasSubstr("on_host()")));
  View of_gpu = counting(2, 2).view();
  of_gpu.memory = Memory::gpu;
  EXPECT_THAT(error_of([&] { of_gpu.as<float>(); }), HasSubstr("are in a GPU's memory"));
  EXPECT_FALSE(dry->keeps_values());
  EXPECT_TRUE(device_->keeps_values());
}

TEST_F(TensorTest, RefusesNegativeExtentsAndWorkOfNoMemory) {
  EXPECT_EQ(error_of([&] { Tensor(arena_, -1, 4, DType::f32); }),
            "a tensor cannot have -1 x 4 elements");
  const std::int64_t much = std::int64_t{1} << 40;
  EXPECT_THAT(error_of([&] { Tensor(arena_, much, much, DType::u8); }), HasSubstr("2^63 bytes"));
  EXPECT_EQ(error_of([] { Tensor().set_pending({}); }), "set_pending: the tensor is empty");
}

TEST_F(TensorTest, TakesNoMemoryWithoutElements) {
  const Tensor none;
  EXPECT_TRUE(none.empty());
  none.wait();
  const Tensor no_rows(arena_, 0, 7, DType::bf16);
  EXPECT_FALSE(no_rows.empty());
  EXPECT_EQ(no_rows.bytes(), 0);
  EXPECT_EQ(no_rows.view().data, nullptr);
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}

TEST_F(TensorTest, OwnerKeepsTheMemoryAlive) {
  std::shared_ptr<void> owner;
  {
    const Tensor tensor(arena_, 1, 16, DType::f32);
    owner = tensor.owner();
  }
  EXPECT_EQ(arena_.stats().live_bytes, 64);
  owner.reset();
  EXPECT_EQ(arena_.stats().live_bytes, 0);
}
