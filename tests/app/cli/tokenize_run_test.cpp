#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"

#include "tests/app/cli/program.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenizeRun, UnderMpirunWritesTheSameFilesOrNone) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const test::TemporaryPath folder;
  test::spill(folder / "a.txt", synthetic_text(200'000, 1));
  test::spill(folder / "b.txt", synthetic_text(3'000, 2));
  const auto tokenize = [&](const std::string& text, const std::string& output, int ranks) {
    return run_program({"data", "tokenize", "--tokenizer", "bytes", "--text", text, "--out",
                        folder / output, "--overwrite"},
                       {.ranks = ranks});
  };
  const Finished alone = tokenize(folder / "*.txt", "one", 0);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const std::string first = alone.out.substr(0, alone.out.find(','));
  for (const int ranks : {1, 2, 3}) {
    const Finished together = tokenize(folder / "*.txt", "together", ranks);
    EXPECT_EQ(together.code, 0) << together.err;
    EXPECT_THAT(together.out, HasSubstr(first)) << "said once, of all files";
    for (const char* ending : {".bin", ".idx"})
      EXPECT_TRUE(test::slurp(folder / ("together" + std::string(ending))) ==
                  test::slurp(folder / ("one" + std::string(ending))))
          << ranks << ending;
  }
  test::spill(folder / "bad.jsonl", std::string(5'000, '\n') + "{\"text\": 5}\n");
  const Finished failed = tokenize(folder / "bad.jsonl", "bad", 3);
  EXPECT_NE(failed.code, 0);
  EXPECT_THAT(failed.errors(), ElementsAre(HasSubstr("bad.jsonl:5001")));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with("bad.") &&
                 entry.path().extension() != ".jsonl")
        << entry.path();
}
