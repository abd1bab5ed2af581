#include "axonn/compute/ops/guarding_backend.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/tensor.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

#include "tests/support/sanitized.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;

namespace {

struct Guarded {
  std::unique_ptr<GuardingBackend> backend =
      std::make_unique<GuardingBackend>(make_cpu_backend(1), 1, "rank 3");

  Tensor zeros(std::int64_t rows, std::int64_t cols, DType dtype = DType::f32) {
    Tensor tensor(backend->arena(), rows, cols, dtype);
    backend->device().fill_zero(tensor.view().data, tensor.bytes());
    return tensor;
  }
  /// Reads inp.
  void add(const View& inp) {
    const Tensor out(backend->arena(), inp.rows, inp.cols, inp.dtype);
    backend->run(ops::Add{out.view(), inp, inp});
  }
};

void flip(const Tensor& tensor, std::int64_t byte, int bit) {
  static_cast<std::byte*>(tensor.view().data)[byte] ^= std::byte{1} << bit;
}

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const auto* const data = static_cast<const std::byte*>(tensor.view().data);
  return {data, data + tensor.bytes()};
}

}  // namespace

TEST(GuardingBackend, SetsEachFlippedBitOfAnOperandRightAndSaysSo) {
  Guarded guarded;
  guarded.backend->mark("h.1.ln_1.weight");
  const Random random(1, "flips");
  std::uint64_t drawn = 0;
  for (const auto& [rows, cols, dtype] : {std::tuple{1, 1, DType::f32},
                                          {3, 5, DType::bf16},
                                          {7, 100, DType::f32},
                                          {1, 31, DType::u8},
                                          {40, 2000, DType::bf16}}) {
    const Tensor inp = guarded.zeros(rows, cols, dtype), other = guarded.zeros(rows, cols, dtype);
    if (dtype != DType::u8)
      guarded.backend->run(ops::AddNumber{guarded.zeros(rows, cols).view(), inp.view(), 1.0F});
    const std::vector<std::byte> right = bytes_of(inp);
    for (int i = 0; i < 300; ++i) {
      const std::int64_t byte = random.below(drawn++, inp.bytes());
      flip(inp, byte, static_cast<int>(random.below(drawn++, 8)));
      guarded.backend->device().copy(other.view().data, inp.view().data, inp.bytes());
      ASSERT_EQ(bytes_of(inp), right);
      ASSERT_EQ(bytes_of(other), right);
      ASSERT_THAT(guarded.backend->take_remarks(),
                  ElementsAre(HasSubstr("rank 3: bytes that a copy reads have changed in memory")));
    }
  }
}

TEST(GuardingBackend, TakesNoTwoFlippedBitsOfALineForAnother) {
  const auto device = make_cpu_device();
  Arena arena(*device);
  ValueSums sums(arena, 1);
  const Tensor line(arena, 1, 16, DType::f32);
  const Random random(2, "line");
  for (int i = 0; i < 16; ++i) line.view().as<float>()[i] = static_cast<float>(random.normal(i));
  const View view = line.view();
  sums.keep(view);
  for (int first = 0; first < 512; ++first)
    for (int second = first + 1; second < 512; second += testing_support::sanitized() ? 41 : 1) {
      flip(line, first / 8, first % 8);
      flip(line, second / 8, second % 8);
      const auto [repaired, lost] = sums.compare(view);
      ASSERT_EQ(repaired, 0) << first << ' ' << second;
      ASSERT_EQ(lost, 1) << first << ' ' << second;
      flip(line, first / 8, first % 8);
      flip(line, second / 8, second % 8);
    }
}

TEST(GuardingBackend, TwoFlippedBitsOfALineEndTheRunAndNameRankLayerAndOperation) {
  Guarded guarded;
  guarded.backend->mark("h.1.ln_1.weight");
  const Tensor inp = guarded.zeros(3, 16);
  flip(inp, 70, 1);
  flip(inp, 100, 7);
  EXPECT_THAT([&] { guarded.add(inp.view()); },
              ThrowsMessage<Error>(HasSubstr("silent corruption: rank 3: bytes that add of "
                                             "h.1.ln_1.weight reads have changed in memory")));
}

TEST(GuardingBackend, FindsFlipsOfWhatOperationsWriteInPartsOfLines) {
  Guarded guarded;
  const Tensor whole = guarded.zeros(8, 10);  // 40 bytes a row
  const Tensor ones = guarded.zeros(1, 10);
  for (std::int64_t row = 0; row < 8; ++row)
    for (const auto& [begin, count] : {std::pair{0, 3}, {3, 7}}) {
      const View part = whole.view().row_range(row, 1).col_range(begin, count);
      guarded.backend->run(ops::AddNumber{part, ones.view().col_range(begin, count), 2.5F});
    }
  for (std::int64_t byte = 0; byte < whole.bytes(); ++byte) {
    flip(whole, byte, static_cast<int>(byte % 8));
    guarded.add(whole.view());
    ASSERT_THAT(guarded.backend->take_remarks(), ElementsAre(HasSubstr(": 1 flipped bits are set")))
        << byte;
  }
}

TEST(GuardingBackend, RaisesNoAlarmForMemoryThatIsWrittenOtherwiseOrAnew) {
  Guarded guarded;
  const void* address = nullptr;
  {
    const Tensor inp = guarded.zeros(3, 16);
    address = inp.view().data;
  }
  const Tensor again(guarded.backend->arena(), 3, 16, DType::f32);
  ASSERT_EQ(again.view().data, address);
  for (int i = 0; i < 48; ++i) again.view().as<float>()[i] = static_cast<float>(i);
  guarded.add(again.view());
  std::vector<float> host(100, 1.0F);  // not of the arena
  const View view{host.data(), DType::f32, 1, 100, 100};
  guarded.backend->run(ops::Scale{view, view, 2.0F});
  host.assign(100, 3.0F);
  guarded.backend->run(ops::Scale{view, view, 2.0F});
  guarded.backend->check_memory();
  EXPECT_THAT(guarded.backend->take_remarks(), IsEmpty());
}

TEST(GuardingBackend, ComparesAllMemoryBeforeACheckpoint) {
  Guarded guarded;
  const Tensor first = guarded.zeros(30, 16), second = guarded.zeros(2, 3);
  const std::vector<std::byte> right = bytes_of(second);
  flip(second, 23, 0);
  guarded.backend->check_memory();
  EXPECT_EQ(bytes_of(second), right);
  EXPECT_THAT(guarded.backend->take_remarks(), ElementsAre(HasSubstr("bytes that a checkpoint")));
}
