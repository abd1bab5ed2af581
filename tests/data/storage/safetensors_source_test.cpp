// Ranks of several grids read their slices of stored matrices.
#include "axonn/data/storage/safetensors/safetensors_source.h"

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;

namespace {

constexpr std::int64_t kRows = 96, kCols = 40;

/// The value of element (row, col): an integer that BF16 and F16 hold exactly.
float value_at(std::int64_t row, std::int64_t col) {
  return static_cast<float>((row * kCols + col) % 251 - 100);
}

/// Writes a folder with "w" (96, 40), its transpose "t", "v" (96), and "j" (2, 192, 40), in which
/// w is the third of four matrices; the others are zero.
void write_folder(const std::string& folder, StoredType type) {
  std::vector<float> w, t, v, j(4 * kRows * kCols);
  for (std::int64_t r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < kCols; ++c) w.push_back(value_at(r, c));
  for (std::int64_t c = 0; c < kCols; ++c)
    for (std::int64_t r = 0; r < kRows; ++r) t.push_back(value_at(r, c));
  for (std::int64_t r = 0; r < kRows; ++r) v.push_back(value_at(r, 0));
  std::ranges::copy(w, j.begin() + 2 * kRows * kCols);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<SafetensorsTensor> tensors;
  const auto add = [&](const char* name, const std::vector<float>& values,
                       std::vector<std::int64_t> shape) {
    bytes.emplace_back(values.size() * static_cast<std::size_t>(bytes_of(type)));
    from_floats(type, values, bytes.back());
    tensors.push_back({{.name = name, .type = type, .shape = std::move(shape)}, {}});
  };
  add("w", w, {kRows, kCols});
  add("t", t, {kCols, kRows});
  add("v", v, {kRows});
  add("j", j, {2, 2 * kRows, kCols});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = bytes[i];
  write_safetensors(folder + "/model.safetensors", tensors);
}

/// The stored tensor of "u" is "t", transposed; "p" is the third matrix of "j".
/// Of a model whose p is one of four matrices of so many rows, two in each half of j.
TensorNames names(std::int64_t rows = kRows) {
  return {.of =
              [rows](const std::string& parameter) {
                if (parameter == "u") return StoredName{{"t"}, true};
                StoredName stored{{parameter}};
                if (parameter == "p")
                  stored.joined = {
                      .names = {"J", "j"}, .outer = 2, .rows = 2 * rows, .first = 2 * rows};
                return stored;
              },
          .passed_over = [](std::string_view tensor) { return tensor == "j"; },
          .config = "config.json"};
}

Layout matrix_layout() {
  return {.rows = kRows, .cols = kCols, .row_axis = Axis::x, .col_axis = Axis::y};
}

/// Every rank of the grid loads its slices of w, t and v; where ranks share experts, also of w and
/// t as parameters of each. Returns the bytes read by all ranks, and fails if an element is wrong
/// or missing.
std::int64_t load_on(const GridShape& shape, const std::string& folder) {
  std::atomic<std::int64_t> bytes = 0;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const Grid grid(world, shape);
    const std::vector<StoredParameter> parameters{
        {"w", kRows, kCols}, {"u", kRows, kCols}, {"v", kRows}, {"p", kRows, kCols}};
    SafetensorsSource source(SafetensorsFolder(folder), parameters, names());
    std::vector<SliceRequest> wanted;
    std::vector<std::vector<float>> buffers;
    const auto want = [&](const char* name, const Layout& layout) {
      const Communicator& holders = layout.expert ? grid.same_experts() : grid.along(Axis::z);
      const std::int64_t all = layout.local_count(shape),
                         begin = all * holders.rank() / holders.size(),
                         end = all * (holders.rank() + 1) / holders.size();
      wanted.push_back({.parameter = name,
                        .slices = clip(layout.slices(shape, grid.coords()), begin, end),
                        .across = layout.col_axis ? &grid.along(*layout.col_axis) : nullptr});
      buffers.emplace_back(end - begin, std::nanf(""));
    };
    want("w", matrix_layout());
    want("u", matrix_layout());
    want("v", {.rows = kRows, .row_axis = Axis::x});
    want("p", matrix_layout());
    for (std::int64_t number = 0; shape.experts > 1 && number < shape.experts; ++number)
      for (const char* name : {"w", "u"}) {
        Layout layout = matrix_layout();
        layout.expert = {number, shape.experts};
        want(name, layout);
      }
    const auto take = [&](std::size_t i, std::int64_t offset, StoredType type,
                          std::span<const std::byte> stored) {
      to_floats(type, stored,
                std::span(buffers[i]).subspan(offset, stored.size() / bytes_of(type)));
    };
    bytes += source.read(wanted, take);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (const Slice& slice : wanted[i].slices)
        for (std::int64_t e = slice.begin; e < slice.end; ++e)
          ASSERT_EQ(buffers[i][slice.offset + e - slice.begin],
                    value_at(slice.row + e / slice.cols, slice.col + e % slice.cols))
              << "tensor " << i << ", element " << e << ", " << grid.describe();
  });
  return bytes;
}

}  // namespace

TEST(SafetensorsSource, EveryRankOfEveryGridGetsItsElementsInEveryType) {
  for (StoredType type : {StoredType::f32, StoredType::bf16, StoredType::f16}) {
    const TemporaryPath path;
    write_folder(path.path(), type);
    for (const GridShape& shape :
         {GridShape{1, 1, 1, 1}, GridShape{2, 1, 1, 1}, GridShape{1, 2, 1, 1},
          GridShape{1, 1, 3, 1}, GridShape{2, 2, 2, 1}, GridShape{3, 4, 1, 1},
          GridShape{1, 5, 2, 1}, GridShape{1, 2, 2, 1, 1, 2}, GridShape{2, 2, 4, 1, 1, 2}})
      load_on(shape, path.path());
  }
}

// The rows at both ends of a slice are read by two ranks, so slices should have many rows.
TEST(SafetensorsSource, OnlyTheRowsAtTheEndsOfSlicesAreReadTwice) {
  const TemporaryPath path;
  write_folder(path.path(), StoredType::f32);
  const std::int64_t bytes = (3 * kRows * kCols + kRows) * 4;
  EXPECT_EQ(load_on({1, 1, 1, 1}, path.path()), bytes);
  const std::int64_t vector = kRows * 4;  // the same on all four ranks of y, each of which reads it
  EXPECT_EQ(load_on({2, 4, 1, 1}, path.path()), bytes + 3 * vector);
  const std::int64_t row = kCols * 4, most_ends = 3 * 7;  // of w, u and p, seven pieces each
  EXPECT_LE(load_on({1, 1, 7, 1}, path.path()), bytes + most_ends * row);
}

TEST(SafetensorsSource, RefusesAJoinedTensorOfAnotherShape) {
  const TemporaryPath path;
  write_folder(path.path(), StoredType::f32);
  const auto open = [&](std::int64_t rows) {
    SafetensorsSource(SafetensorsFolder(path.path()),
                      {{"w", kRows, kCols}, {"u", kRows, kCols}, {"v", kRows}, {"p", rows, kCols}},
                      names(rows));
  };
  EXPECT_NO_THROW(open(kRows));
  EXPECT_THAT([&] { open(kRows / 2); }, testing::ThrowsMessage<UsageError>(testing::HasSubstr(
                                            "j is (2, 192, 40), wanted (2, 96, 40)")));
}

namespace {

/// Two experts of (96, 64) matrices a and b, whose rows alternate in columns of a joined tensor,
/// and their vectors; or the matrices in MXFP4, in rows.
class Alternating {
 public:
  static constexpr std::int64_t kInputs = 64;
  /// A value of matrix 0 or 1 of expert 0 or 1 that MXFP4 holds.
  static float value(std::int64_t expert, std::int64_t which, std::int64_t row, std::int64_t col) {
    return fp4(code(expert, which, row, col)) *
           std::exp2(static_cast<float>(scale(expert, which, row, col) - 127));
  }

  Alternating(const std::string& folder, bool packed) {
    const std::int64_t E = 2, R = 2 * kRows;
    std::vector<std::byte> blocks(E * R * kInputs / 2), scales(E * R * kInputs / 32);
    std::vector<float> joined(E * R * kInputs), vectors(E * R);
    for (std::int64_t e = 0; e < E; ++e)
      for (std::int64_t r = 0; r < R; ++r)
        for (std::int64_t c = 0; c < kInputs; ++c) {
          joined[(e * kInputs + c) * R + r] = value(e, r % 2, r / 2, c);
          vectors[e * R + r] = value(e, r % 2, r / 2, 0);
          const std::int64_t at = (e * R + r) * kInputs + c;
          blocks[at / 2] |= std::byte(code(e, r % 2, r / 2, c) << (at % 2 * 4));
          scales[at / 32] = std::byte(scale(e, r % 2, r / 2, c));
        }
    const SafetensorsTensor of_vectors{{.name = "x_bias", .type = StoredType::f32, .shape = {E, R}},
                                       std::as_bytes(std::span(vectors))};
    if (packed)
      write_safetensors(
          folder + "/model.safetensors",
          {{{.name = "x_blocks", .type = StoredType::u8, .shape = {E, R, kInputs / 32, 16}},
            blocks},
           {{.name = "x_scales", .type = StoredType::u8, .shape = {E, R, kInputs / 32}}, scales},
           of_vectors});
    else
      write_safetensors(folder + "/model.safetensors",
                        {{{.name = "x", .type = StoredType::f32, .shape = {E, kInputs, R}},
                          std::as_bytes(std::span(joined))},
                         of_vectors});
  }

  /// "a0" is matrix a of expert 0, "ab0" its vector.
  static TensorNames names() {
    return {.of =
                [](const std::string& parameter) {
                  const bool vector = parameter.size() == 3;
                  const std::int64_t expert = parameter.back() - '0', which = parameter[0] - 'a';
                  StoredName stored{{parameter}};
                  stored.joined = {.names = {vector ? "x_bias" : "x"},
                                   .outer = 2,
                                   .rows = 2 * kRows,
                                   .first = expert * 2 * kRows + which,
                                   .step = 2,
                                   .transposed = true,
                                   .usual = true};
                  return stored;
                },
            .passed_over = [](std::string_view) { return false; },
            .config = "config.json"};
  }

 private:
  static int code(std::int64_t expert, std::int64_t which, std::int64_t row, std::int64_t col) {
    return static_cast<int>((expert * 5 + which * 3 + row * 7 + col) % 16);
  }
  static int scale(std::int64_t expert, std::int64_t which, std::int64_t row, std::int64_t col) {
    return static_cast<int>(120 + (expert + which * 2 + row + col / 32) % 11);
  }
  static float fp4(int code) {
    constexpr std::array<float, 8> kSizes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code < 8 ? kSizes[code] : -kSizes[code - 8];
  }
};

}  // namespace

TEST(SafetensorsSource, RowsThatAlternateInColumnsOrInMxfp4AreReadOnEveryGrid) {
  for (const bool packed : {false, true})
    for (const GridShape& shape : {GridShape{}, GridShape{.x = 2, .y = 2}, GridShape{.z = 5}}) {
      const TemporaryPath path;
      const Alternating folder(path.path(), packed);
      std::atomic<std::int64_t> read = 0;
      run_ranks(shape.ranks(), [&](Communicator& world) {
        const Grid grid(world, shape);
        std::vector<StoredParameter> parameters;
        for (const std::string number : {"0", "1"})
          for (const char which : {'a', 'b'}) {
            parameters.push_back({which + number, kRows, Alternating::kInputs});
            parameters.push_back({which + ("b" + number), kRows, 1});
          }
        SafetensorsSource source(SafetensorsFolder(path.path()), parameters, Alternating::names());
        for (const auto& [name, rows, cols] : parameters) {
          Layout layout{.rows = rows, .cols = cols, .row_axis = Axis::x};
          if (cols > 1) layout.col_axis = Axis::y;
          const std::int64_t all = layout.local_count(shape), z = grid.coord(Axis::z);
          SliceRequest wanted{.parameter = name,
                              .slices = clip(layout.slices(shape, grid.coords()), all * z / shape.z,
                                             all * (z + 1) / shape.z),
                              .across = layout.col_axis ? &grid.along(Axis::y) : nullptr};
          std::vector<float> got(all, std::nanf(""));
          source.read({&wanted, 1}, [&](std::size_t, std::int64_t offset, StoredType type,
                                        std::span<const std::byte> values) {
            to_floats(type, values, std::span(got).subspan(offset, values.size() / bytes_of(type)));
          });
          for (const Slice& slice : wanted.slices)
            for (std::int64_t e = slice.begin; e < slice.end; ++e, ++read)
              ASSERT_EQ(got[slice.offset + e - slice.begin],
                        Alternating::value(name.back() - '0', name[0] - 'a',
                                           slice.row + e / slice.cols, slice.col + e % slice.cols))
                  << name << ' ' << e << ' ' << grid.describe() << packed;
        }
      });
      EXPECT_GE(read, 4 * kRows * (Alternating::kInputs + 1)) << "each rank of y has the vectors";
    }
}

TEST(SafetensorsSource, RowsInMxfp4AreRecordsOfTheSameValues) {
  const TemporaryPath path;
  const Alternating folder(path.path(), true);
  std::vector<StoredParameter> parameters;
  for (const char* name : {"a0", "b0", "a1", "b1"})
    parameters.push_back({name, kRows, Alternating::kInputs});
  for (const char* name : {"ab0", "bb0", "ab1", "bb1"}) parameters.push_back({name, kRows, 1});
  SafetensorsSource source(SafetensorsFolder(path.path()), parameters, Alternating::names());
  EXPECT_EQ(source.stored_as("ab0"), Quantization::none);
  const QuantizedForm form{Quantization::mxfp4, 32};
  constexpr std::int64_t kCount = kRows * Alternating::kInputs;
  for (const std::string name : {"a0", "b1"}) {
    ASSERT_EQ(source.stored_as(name), form.kind);
    EXPECT_EQ(source.read_records(name, Quantization::q4_0, 0, {}), std::nullopt);
    std::vector<std::byte> records(form.bytes(kCount)), some(form.bytes(5 * form.unit));
    EXPECT_EQ(source.read_records(name, form.kind, 0, records), std::ssize(records));
    EXPECT_EQ(source.read_records(name, form.kind, 3, some), std::ssize(some));
    EXPECT_TRUE(std::ranges::equal(
        some, std::span(records).subspan(form.bytes(3 * form.unit), some.size())));
    std::vector<float> values(kCount);
    read_values(form, records, 0, values);
    for (std::int64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(values[i], Alternating::value(name[1] - '0', name[0] - 'a',
                                              i / Alternating::kInputs, i % Alternating::kInputs));
  }
}

TEST(SafetensorsSource, BlocksInFp8AreReadWithTheirFactors) {
  constexpr std::int64_t kFp8Rows = 200, kFp8Cols = 300;
  const TemporaryPath path;
  std::vector<std::byte> values(kFp8Rows * kFp8Cols);
  const std::vector<float> factors{1, 0.5, 3, 2, 0.25, 7};  // of 2 x 3 blocks
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::byte(i % 127);
  values[1] = std::byte(0x80 + 0x7e);
  const SafetensorsTensor scales{{.name = "w_scale_inv", .type = StoredType::f32, .shape = {2, 3}},
                                 std::as_bytes(std::span(factors))};
  write_safetensors(
      path / "model.safetensors",
      {{{.name = "w", .type = StoredType::f8_e4m3, .shape = {kFp8Rows, kFp8Cols}}, values},
       scales});
  const auto open = [&](std::int64_t rows) {
    return SafetensorsSource(SafetensorsFolder(path.path()), {{"w", rows, kFp8Cols}},
                             {.of = [](const std::string& name) { return StoredName{{name}}; },
                              .passed_over = [](std::string_view) { return false; },
                              .config = "config.json"});
  };
  SafetensorsSource source = open(kFp8Rows);
  std::vector<float> got(4 * 150);  // columns 140 to 289 of rows 126 to 129
  source.read_slice("w", {.row = 126, .rows = 4, .col = 140, .cols = 150, .end = std::ssize(got)},
                    got);
  for (std::int64_t i = 0; i < std::ssize(got); ++i) {
    const std::int64_t row = 126 + i / 150, col = 140 + i % 150;
    const auto bits = static_cast<int>((row * kFp8Cols + col) % 127);
    const double size = bits < 8 ? bits / 512.0 : std::ldexp(8 + bits % 8, bits / 8 - 10);
    EXPECT_EQ(got[i], static_cast<float>(size) * factors[row / 128 * 3 + col / 128]) << i;
  }
  std::vector<float> first(2);
  source.read_slice("w", {.rows = 1, .cols = 2, .end = 2}, first);
  EXPECT_EQ(first[1], -448) << "the largest number, with its sign";
  EXPECT_THAT([&] { open(100); }, testing::ThrowsMessage<UsageError>(testing::HasSubstr(
                                      "w and w_scale_inv are not a matrix (100, 300) of F8_E4M3")));
}

TEST(SafetensorsSource, RefusesMxfp4OfAnotherShape) {
  const TemporaryPath path;
  const Alternating folder(path.path(), true);
  EXPECT_THAT(
      [&] {
        SafetensorsSource(SafetensorsFolder(path.path()), {{"a0", kRows, 96}, {"ab0", kRows, 1}},
                          Alternating::names());
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr(
          "x_blocks and _scales are not those of MXFP4 for a tensor (2, 192, 96)")));
}

TEST(SafetensorsSource, ARankThatCannotReadLeavesNoOtherRankWaiting) {
  const TemporaryPath path;
  write_folder(path.path(), StoredType::f32);
  std::atomic<int> refused = 0;
  run_ranks(4, [&](Communicator& world) {
    const Grid grid(world, {.y = 4});
    SafetensorsSource source(SafetensorsFolder(path.path()),
                             {{"w", kRows, kCols}, {"u", kRows, kCols}, {"v", kRows}}, names());
    world.barrier("opened");
    if (world.rank() == 0) std::filesystem::resize_file(path / "model.safetensors", 5000);
    world.barrier("cut");
    const SliceRequest w{.parameter = "w",
                         .slices = matrix_layout().slices({.y = 4}, grid.coords()),
                         .across = &grid.along(Axis::y)};
    try {
      source.read({&w, 1},
                  [](std::size_t, std::int64_t, StoredType, std::span<const std::byte>) {});
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("model.safetensors"));
      ++refused;
    }
  });
  EXPECT_GE(refused, 1);
  EXPECT_LT(refused, 4) << "the first rows are still in the file";
}

TEST(StoredValues, RoundTripThroughF16AndBf16IsExactForEveryBitPattern) {
  for (StoredType type : {StoredType::f16, StoredType::bf16}) {
    std::vector<std::uint16_t> bits(1 << 16), again(bits.size());
    std::iota(bits.begin(), bits.end(), 0);
    std::vector<float> values(bits.size());
    to_floats(type, std::as_bytes(std::span(bits)), values);
    from_floats(type, values, std::as_writable_bytes(std::span(again)));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (std::isnan(values[i])) {
        std::vector<float> still(1);
        to_floats(type, std::as_bytes(std::span(again).subspan(i, 1)), still);
        EXPECT_TRUE(std::isnan(still[0])) << i;
      } else {
        ASSERT_EQ(bits[i], again[i]) << name_of(type);
      }
    }
  }
}

TEST(StoredValues, F16HasItsPublishedValuesAndRoundsToNearestEven) {
  const auto half_of = [](float value) {
    std::uint16_t bits = 0;
    from_floats(StoredType::f16, std::span(&value, 1), std::as_writable_bytes(std::span(&bits, 1)));
    return bits;
  };
  EXPECT_EQ(half_of(1.0f), 0x3c00);
  EXPECT_EQ(half_of(-2.0f), 0xc000);
  EXPECT_EQ(half_of(65504.0f), 0x7bff);
  EXPECT_EQ(half_of(65519.9f), 0x7bff);
  EXPECT_EQ(half_of(65520.0f), 0x7c00) << "half way to 2^16 rounds to infinity";
  EXPECT_EQ(half_of(0x1p-14f), 0x0400) << "the smallest normal number";
  EXPECT_EQ(half_of(0x1p-24f), 0x0001);
  EXPECT_EQ(half_of(0x1p-25f), 0x0000) << "half way to zero: to even";
  EXPECT_EQ(half_of(0x1.8p-24f), 0x0002) << "half way between 1 and 2 units: to even";
  EXPECT_EQ(half_of(1.0f + 0x1p-11f), 0x3c00) << "to even";
  EXPECT_EQ(half_of(1.0f + 0x1.8p-10f), 0x3c02);
}

TEST(SafetensorsFolder, ReadsShardsThroughTheIndexAndRefusesInconsistentOnes) {
  const TemporaryPath path;
  const std::vector<std::byte> data(8);
  write_safetensors(path / "one.safetensors",
                    {{{.name = "a", .type = StoredType::f32, .shape = {2}}, data}});
  write_safetensors(path / "two.safetensors",
                    {{{.name = "b", .type = StoredType::f32, .shape = {2}}, data}});
  const auto with_index = [&](const std::string& text) {
    spill(path / "model.safetensors.index.json", text);
    return SafetensorsFolder(path.path());
  };
  const SafetensorsFolder good =
      with_index(R"({"metadata":{"total_size":16},)"
                 R"("weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_EQ(good.tensors().size(), 2);
  EXPECT_EQ(good.find("b").file->path(), path / "two.safetensors");
  EXPECT_EQ(good.find("c").entry, nullptr);
  const auto expect_refused = [&](const std::string& text, const std::string& message) {
    EXPECT_THAT([&] { with_index(text); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(message)))
        << text;
  };
  expect_refused(R"({"weight_map":{"a":"two.safetensors"}})", "holds a, but it does not");
  expect_refused(R"({"weight_map":{"a":"none.safetensors"}})", "none.safetensors");
  expect_refused(R"({"weight_map":{"a":"../one.safetensors"}})", "is not a file name");
  expect_refused(R"({"weight_map":{"a":1}})", "no file name for \"a\"");
  expect_refused(R"({"weight_map":{"a":{}}})", "no file name for \"a\"");
  expect_refused(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})", "comes twice");
  expect_refused(R"({"weight_map":{}})", "has no weight_map");
  expect_refused(R"({"weight_map":)", "invalid JSON");
  expect_refused(std::string(100'000, '['), "invalid JSON");
}
