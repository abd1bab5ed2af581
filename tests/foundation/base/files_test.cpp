#include "axonn/foundation/base/files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST(OutputFile, ThatIsNotFinishedIsRemoved) {
  const TemporaryPath folder;
  {
    OutputFile file(folder / "a");
    file.append(bytes_of("abc"));
    EXPECT_EQ(names_in(folder.path()).size(), 1);
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
  OutputFile file(folder / "a");
  file.append(bytes_of("abc"));
  file.append(bytes_of("de"));
  EXPECT_EQ(file.bytes(), 5);
  file.finish();
  EXPECT_EQ(slurp(folder / "a"), "abcde");
}

TEST(OutputFile, OnAFullDeviceTheErrorNamesFileBytesCauseAndRemedy) {
  const TemporaryPath folder;
  fs::create_symlink("/dev/full", folder / "a");
  EXPECT_THAT([&] { write_text(folder / "a", "hello"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cannot write 5 bytes to " + folder.path()),
                                         HasSubstr("No space left on device; free space there"))));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a")) << "links and devices are not removed";
  EXPECT_TRUE(fs::exists("/dev/full"));
}

TEST(OutputFile, ThatCannotBeCreatedIsAnErrorWithThePath) {
  EXPECT_THAT([] { OutputFile("/nonexistent/a"); },
              ThrowsMessage<Error>(HasSubstr("cannot create /nonexistent/a: No such file")));
}

TEST(InputFile, ThatIsMissingOrAFolderOrAPipeIsAUsageError) {
  const TemporaryPath folder;
  ::mkfifo((folder / "pipe").c_str(), 0600);
  EXPECT_THAT([&] { InputFile(folder / "pipe"); },
              ThrowsMessage<UsageError>(HasSubstr("pipe is not a regular file")));
  EXPECT_THAT([&] { InputFile(folder / "none"); },
              ThrowsMessage<UsageError>(HasSubstr("none: No such file or directory")));
  EXPECT_THAT([&] { InputFile file(folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("is not a regular file")));
}

TEST(InputFile, ReadBeyondItsEndIsAnErrorWithItsSize) {
  const TemporaryPath folder;
  spill(folder / "a", "abcde");
  const InputFile file(folder / "a");
  std::string out(3, ' ');
  file.read(2, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "cde");
  EXPECT_THAT([&] { file.read(4, std::as_writable_bytes(std::span(out))); },
              ThrowsMessage<UsageError>(HasSubstr("ends at byte 5, but bytes up to 7")));
}

TEST(InputFile, ThatIsAPointerOfGitLfsIsAUsageErrorWithTheRemedy) {
  TemporaryPath folder;
  const std::string file = folder / "tokenizer.json", begin = "version https://git-lfs.github.com/";
  spill(file, begin + "spec/v1\noid sha256:00\nsize 9\n");
  EXPECT_THAT([&] { read_text(file); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr(file + " is a Git LFS pointer"), HasSubstr("git lfs pull"))));
  spill(file, begin);
  EXPECT_EQ(read_text(file), begin);
}

TEST(RealPath, FollowsLinksAndDotsOfPathsThatNeedNotExist) {
  TemporaryPath folder;
  std::filesystem::create_directories(folder / "a/b");
  std::filesystem::create_directory_symlink("a", folder / "link");
  for (const char* path : {"link/b/", "a/none/../b", "link/../a/b/."})
    EXPECT_EQ(real_path(folder / path), real_path(folder / "a") + "/b") << path;
  EXPECT_EQ(real_path(folder / "link/new/x"), real_path(folder / "a") + "/new/x");
}

TEST(InputFile, MoreThanTheSoftLimitOfOpenFilesCanBeOpen) {
  const TemporaryPath folder;
  spill(folder / "a", "abcde");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few { 64, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<InputFile> files;
  for (int i = 0; i < 100; ++i) EXPECT_NO_THROW(files.emplace_back(folder / "a")) << i;
  files.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(ReadText, RefusesAFileLongerThanAllowed) {
  const TemporaryPath folder;
  spill(folder / "a", "abcde");
  EXPECT_EQ(read_text(folder / "a"), "abcde");
  EXPECT_THAT([&] { read_text(folder / "a", 4); },
              ThrowsMessage<UsageError>(HasSubstr("has 5 bytes; at most 4")));
}

TEST(WriteFileAtomically, ReplacesTheTextOrLeavesOnlyTheOldOne) {
  const TemporaryPath folder;
  write_file_atomically(folder / "a", "one");
  write_file_atomically(folder / "a", "two");
  EXPECT_EQ(slurp(folder / "a"), "two");
  fs::create_directory(folder / "b");
  EXPECT_THAT([&] { write_file_atomically(folder / "b", "three"); },
              ThrowsMessage<Error>(HasSubstr("it is a folder")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a", "b"));
}

TEST(TemporaryFolder, HasItsFinalNameOnlyWhenPublished) {
  const TemporaryPath folder;
  {
    TemporaryFolder temporary(folder / "new/step-1/");
    write_text(temporary.path() + "/a", "one");
    EXPECT_FALSE(fs::exists(folder / "new/step-1"));
    const auto names = names_in(folder / "new");
    ASSERT_EQ(names.size(), 1);
    EXPECT_TRUE(is_temporary_name(names[0], "step-1"));
    EXPECT_FALSE(is_temporary_name(names[0], "step-"));
  }
  EXPECT_THAT(names_in(folder / "new"), IsEmpty());
  for (const char* text : {"two", "three"}) {
    TemporaryFolder temporary(folder / "new/step-1");
    write_text(temporary.path() + "/a", text);
    temporary.publish();
    EXPECT_THAT(names_in(folder / "new"), ElementsAre("step-1"));
    EXPECT_EQ(slurp(folder / "new/step-1/a"), text);
  }
}

TEST(TemporaryFolder, RemovesThoseOfKilledWritersAndNoOthers) {
  const TemporaryPath folder;
  fs::create_directories(folder / "a.tmp-0123456789abcdef/of a killed writer");
  fs::create_directories(folder / "b.tmp-0123456789abcdef");
  const TemporaryFolder first(folder / "a");
  TemporaryFolder second(folder / "a");
  EXPECT_FALSE(fs::exists(folder / "a.tmp-0123456789abcdef"));
  EXPECT_TRUE(fs::exists(first.path()));
  second.publish();
  EXPECT_TRUE(fs::exists(first.path()));
  EXPECT_TRUE(fs::exists(folder / "b.tmp-0123456789abcdef"));
}

TEST(FreeBytes, UsesTheNearestFolderThatExists) {
  const TemporaryPath folder;
  EXPECT_GT(free_bytes(folder / "not/yet/there"), 0);
}

TEST(PieceHasher, GivesTheHashOfEachPieceHoweverTheBytesAreSplit) {
  std::string text(static_cast<std::size_t>(2 * kPieceBytes + 12345), 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
  const auto piece = static_cast<std::size_t>(kPieceBytes);
  const std::vector<std::uint64_t> want = {xxh3(std::string_view(text).substr(0, piece)),
                                           xxh3(std::string_view(text).substr(piece, piece)),
                                           xxh3(std::string_view(text).substr(2 * piece))};
  PieceHasher hasher;
  for (std::size_t step : {std::size_t{1'000'003}, text.size(), piece}) {
    for (std::size_t at = 0; at < text.size(); at += step)
      hasher.append(bytes_of(text).subspan(at, std::min(step, text.size() - at)));
    EXPECT_EQ(hasher.finish(), want);
  }
  EXPECT_THAT(hasher.finish(), IsEmpty());
}

TEST(Xxh3, MatchesThePublishedTestVector) {
  EXPECT_EQ(hex_of(xxh3(std::string_view())), "2d06800538d394c2");  // xxhash's own test vector
  EXPECT_EQ(parse_hex("2d06800538d394c2"), 0x2d06800538d394c2);
  EXPECT_EQ(parse_hex("2d06800538d394c"), std::nullopt);
  EXPECT_EQ(parse_hex("2d06800538d394cg"), std::nullopt);
}

TEST(AtomicFile, HasItsNameOnlyOnceItIsWhole) {
  const TemporaryPath folder;
  write_text(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.append(bytes_of("hello"));
    EXPECT_EQ(slurp(folder / "a"), "old");
    EXPECT_EQ(names_in(folder.path()).size(), 2);
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a")) << "not committed";
  AtomicFile file(folder / "a");
  file.append(bytes_of("hello"));
  file.overwrite(1, bytes_of("ipp"));
  EXPECT_THROW(file.overwrite(3, bytes_of("abc")), Error) << "beyond what was appended";
  file.append(bytes_of("!"));
  file.commit();
  EXPECT_EQ(slurp(folder / "a"), "hippo!");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, RemovesTheTemporaryFilesOfKilledWritersAndNoOthers) {
  const TemporaryPath folder;
  write_text(folder / "a.tmp-0123456789abcdef", "abandoned");
  write_text(folder / "a.tmp-0123", "the user's");
  write_text(folder / "b.tmp-0123456789abcdef", "of another file");
  AtomicFile first(folder / "a"), second(folder / "a");
  first.append(bytes_of("first"));
  second.append(bytes_of("second"));
  EXPECT_FALSE(fs::exists(folder / "a.tmp-0123456789abcdef"));
  first.commit();
  second.commit();
  EXPECT_EQ(slurp(folder / "a"), "second");
  EXPECT_THAT(names_in(folder.path()),
              testing::UnorderedElementsAre("a", "a.tmp-0123", "b.tmp-0123456789abcdef"));
}

TEST(AtomicFile, ThatCannotBeCreatedIsAUsageErrorWithThePath) {
  const TemporaryPath folder;
  EXPECT_THAT([] { AtomicFile("/nonexistent/a"); },
              ThrowsMessage<UsageError>(HasSubstr("cannot write /nonexistent/a: No such file")));
  EXPECT_THAT([&] { AtomicFile{folder.path()}; },
              ThrowsMessage<UsageError>(HasSubstr("it is a folder")));
}
