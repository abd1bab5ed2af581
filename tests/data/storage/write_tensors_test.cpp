// Safetensors files and checkpoints written from parameters piece by piece.
#include "axonn/data/storage/write_tensors.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/storage/model_state.h"
#include "tests/data/storage/plain_safetensors.h"
#include "tests/support/computed_source.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// A source in which element (row, col) of every parameter is 100 row + col; counts the elements
/// read.
class Counting : public testing_support::ComputedSource {
 public:
  void compute(const std::string&, const Slice& slice, std::span<float> out) override {
    for (std::int64_t e = slice.begin; e < slice.end; ++e)
      out[e - slice.begin] =
          static_cast<float>(100 * (slice.row + e / slice.cols) + slice.col + e % slice.cols);
    most = std::max(most, slice.count());
    total += slice.count();
  }
  std::int64_t most = 0, total = 0;
};

PlannedTensor matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  return {.name = name, .parameter = {name, rows, cols}};
}

std::vector<float> floats_of(const PlainTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace

TEST(WriteTensors, AFileHasEveryTensorInItsShapeTypeAndOrientation) {
  const TemporaryPath folder;
  std::vector<PlannedTensor> tensors{matrix("a", 2, 3), matrix("t", 2, 3), matrix("v", 3, 1),
                                     matrix("b", 3, 1), matrix("h", 1, 2)};
  tensors[1].transposed = true;
  tensors[2].vector = true;
  tensors[4].type = StoredType::bf16;
  Counting source;
  const WrittenFile written = write_tensors(folder / "x", tensors, source);
  const PlainTensors read = plain_safetensors(folder / "x");
  EXPECT_EQ(read.size(), 5);
  EXPECT_THAT(read.at("a").shape, ElementsAre(2, 3));
  EXPECT_THAT(floats_of(read.at("a")), ElementsAre(0, 1, 2, 100, 101, 102));
  EXPECT_THAT(read.at("t").shape, ElementsAre(3, 2));
  EXPECT_THAT(floats_of(read.at("t")), ElementsAre(0, 100, 1, 101, 2, 102));
  EXPECT_THAT(read.at("v").shape, ElementsAre(3));
  EXPECT_THAT(read.at("b").shape, ElementsAre(3, 1)) << "a matrix of one column stays one";
  EXPECT_EQ(read.at("h").dtype, "BF16");
  EXPECT_EQ(read.at("h").bytes, std::string("\0\0\x80\x3f", 4));
  EXPECT_EQ(written.bytes, static_cast<std::int64_t>(slurp(folder / "x").size()));
  const std::string at = slurp(folder / "x").substr(written.data_begins[2], 12);
  EXPECT_EQ(at, read.at("v").bytes);
}

TEST(WriteTensors, RowsOfSeveralParametersAlternateInColumnsOfTheFile) {
  const TemporaryPath folder;
  PlannedTensor experts = matrix("e", 2, 3), biases = matrix("v", 2, 1);
  experts.more = {{"u", 2, 3}, {"e", 2, 3}, {"u", 2, 3}};
  experts.outer = experts.together = 2;
  experts.transposed = true;
  biases.more = {{"u", 2, 1}, {"v", 2, 1}, {"u", 2, 1}};
  biases.outer = biases.together = 2;
  biases.vector = true;
  class Named : public testing_support::ComputedSource {
    void compute(const std::string& name, const Slice& slice, std::span<float> out) override {
      for (std::int64_t i = 0; i < slice.count(); ++i)
        out[i] = static_cast<float>(100 * (slice.row + i / slice.cols) + slice.col +
                                    i % slice.cols + (name == "u" ? 0.5 : 0));
    }
  } source;
  PlannedTensor in_turn = experts;
  in_turn.name = "turn";
  in_turn.alternate = false;
  write_tensors(folder / "x", std::vector{experts, biases, in_turn}, source);
  const PlainTensors read = plain_safetensors(folder / "x");
  EXPECT_THAT(read.at("e").shape, ElementsAre(2, 3, 4));
  const std::vector<float> one{0, 0.5, 100, 100.5, 1, 1.5, 101, 101.5, 2, 2.5, 102, 102.5};
  std::vector<float> both = one;
  both.insert(both.end(), one.begin(), one.end());
  EXPECT_EQ(floats_of(read.at("e")), both);
  const std::vector<float> follow{0, 100, 0.5, 100.5, 1, 101, 1.5, 101.5, 2, 102, 2.5, 102.5};
  both = follow;
  both.insert(both.end(), follow.begin(), follow.end());
  EXPECT_EQ(floats_of(read.at("turn")), both) << "those of one part follow each other";
  EXPECT_THAT(read.at("v").shape, ElementsAre(2, 4));
  EXPECT_THAT(floats_of(read.at("v")), ElementsAre(0, 0.5, 100, 100.5, 0, 0.5, 100, 100.5));
}

TEST(WriteTensors, ATensorWithoutElementsIsWrittenWithItsShape) {
  const TemporaryPath folder;
  std::vector<PlannedTensor> tensors{matrix("a", 2, 0), matrix("b", 0, 3), matrix("c", 1, 1),
                                     matrix("d", 0, 2)};
  tensors[3].transposed = true;
  Counting source;
  write_tensors(folder / "x", tensors, source);
  const PlainTensors read = plain_safetensors(folder / "x");
  EXPECT_THAT(read.at("a").shape, ElementsAre(2, 0));
  EXPECT_THAT(read.at("b").shape, ElementsAre(0, 3));
  EXPECT_THAT(floats_of(read.at("c")), ElementsAre(0));
  EXPECT_THAT(read.at("d").shape, ElementsAre(2, 0));
}
TEST(WriteTensors, LargeTensorsAreReadInPiecesAndEachElementOnce) {
  const TemporaryPath folder;
  for (const bool transposed : {false, true}) {
    std::vector<PlannedTensor> tensors{matrix("large", 6'001, 8'191)};
    tensors[0].transposed = transposed;
    tensors[0].type = StoredType::bf16;
    Counting source;
    std::int64_t told = 0;
    const WrittenFile written =
        write_tensors(folder / "x", tensors, source, [&](std::int64_t bytes) { told += bytes; });
    EXPECT_LE(source.most, 32 << 20);
    EXPECT_EQ(source.total, 6'001 * 8'191);
    EXPECT_EQ(told, source.total * 2);
    // 100 row + col of the last element, in bf16, to nearest.
    const std::string last = slurp(folder / "x").substr(written.bytes - 2);
    const float value = 100.0F * 6'000 + 8'190;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    EXPECT_EQ(last, std::string({static_cast<char>(bits), static_cast<char>(bits >> 8)}));
  }
}

TEST(WriteTensors, AFolderIsCutIntoFilesOfAtMostTheGivenBytes) {
  const std::vector<PlannedTensor> tensors{matrix("a", 2, 4), matrix("b", 1, 4), matrix("c", 4, 4),
                                           matrix("d", 1, 1)};
  const auto sizes = [&](std::int64_t most) {
    std::vector<std::size_t> counts;
    for (const auto& file : in_files(tensors, most)) counts.push_back(file.size());
    return counts;
  };
  EXPECT_THAT(sizes(1000), ElementsAre(4));
  EXPECT_THAT(sizes(48), ElementsAre(2, 1, 1)) << "the third has 64 bytes and gets its own file";
  EXPECT_THAT(sizes(1), ElementsAre(1, 1, 1, 1));
  const TemporaryPath one, several;
  Counting source;
  write_safetensors_folder(one.path(), tensors, 1000, source);
  write_safetensors_folder(several.path(), tensors, 48, source);
  EXPECT_EQ(plain_folder(one.path()), plain_folder(several.path()));
  EXPECT_THAT(names_in(one.path()), ElementsAre("model.safetensors"));
  EXPECT_THAT(names_in(several.path()),
              ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
}

TEST(WriteTensors, F16RefusesValuesThatItCannotHold) {
  class Large : public testing_support::ComputedSource {
   public:
    void compute(const std::string&, const Slice&, std::span<float> out) override {
      std::ranges::fill(out, value);
    }
    float value = 0;
  };
  const TemporaryPath folder;
  Large source;
  std::vector<PlannedTensor> tensors{matrix("w", 1, 1)};
  tensors[0].type = StoredType::f16;
  for (const float fits : {65504.0F, -65519.0F, HUGE_VALF}) {
    source.value = fits;
    EXPECT_NO_THROW(write_tensors(folder / "x", tensors, source)) << fits;
  }
  source.value = -65520;
  EXPECT_THAT([&] { write_tensors(folder / "y", tensors, source); },
              ThrowsMessage<UsageError>(HasSubstr("w has values beyond 65504")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("x")) << "the unfinished file is removed";
}

TEST(WriteTensors, ACheckpointThatIsWrittenFromAnotherIsReadOnAnyGrid) {
  const TemporaryPath folder;
  const ModelStateOptions masters{.kinds = {"master"}};
  save_model(folder / "run", {2, 2, 2, 1}, 0);
  const CheckpointReader reader(folder / "run");
  CheckpointSource source(reader, reader.index().parameters);
  for (const std::int64_t most : {1'000'000'000, 30'000}) {
    const std::string path = concat(folder / "copy", most);
    std::filesystem::create_directory(path);
    write_checkpoint(path, {reader.index().parameters, {{"note.txt", "hello"}}, most}, source);
    EXPECT_EQ(CheckpointReader(path).text("note.txt"), "hello");
    for (const GridShape& shape : {GridShape{1, 1, 1, 1}, GridShape{3, 2, 1, 2}})
      EXPECT_EQ(load_model(path, shape, masters), "") << path;
  }
}

TEST(CheckpointSource, ReadsAnySliceOfACheckpointFromAnyGrid) {
  const TemporaryPath folder;
  save_model(folder / "one", {1, 1, 1, 1});
  save_model(folder / "eight", {2, 2, 1, 2});
  const CheckpointReader one(folder / "one"), eight(folder / "eight");
  CheckpointSource whole(one, one.index().parameters), pieces(eight, eight.index().parameters);
  int parts = 0;
  for (const StoredParameter& p : one.index().parameters) {
    const std::vector<Slice> slices{
        {.rows = p.rows, .cols = p.cols, .begin = 0, .end = p.rows * p.cols},
        {.row = p.rows / 3, .rows = p.rows / 2, .col = p.cols / 4, .cols = (p.cols + 1) / 2},
        {.rows = p.rows, .cols = p.cols, .begin = p.rows * p.cols / 5, .end = p.rows * p.cols / 3}};
    for (Slice slice : slices) {
      if (slice.end == 0) slice.end = slice.rows * slice.cols;
      std::vector<float> want(slice.count()), got(slice.count(), -1);
      whole.read_slice(p.name, slice, want);
      pieces.read_slice(p.name, slice, got);
      EXPECT_EQ(want, got) << p.name;
      ++parts;
    }
  }
  EXPECT_GT(parts, 20);
}

TEST(CheckpointSource, RefusesAnotherModelAndAlteredBytes) {
  const TemporaryPath folder;
  save_model(folder / "run", {1, 1, 2, 1});
  const CheckpointReader reader(folder / "run");
  std::vector<StoredParameter> model = reader.index().parameters;
  model.front().rows += 1;
  model.back().name = "other";
  EXPECT_THAT([&] { CheckpointSource(reader, model); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("it has no other"),
                                                       HasSubstr(model.front().name + " is ("))));
  flip(reader.folder() + "/rank-00001.safetensors", 5000, 1);
  CheckpointSource source(reader, reader.index().parameters);
  const auto read_all = [&] {
    for (const StoredParameter& p : reader.index().parameters) {
      std::vector<float> out(p.rows * p.cols);
      source.read_slice(p.name, {.rows = p.rows, .cols = p.cols, .end = p.count()}, out);
    }
  };
  EXPECT_THAT(read_all, ThrowsMessage<UsageError>(HasSubstr("is altered")));
}
