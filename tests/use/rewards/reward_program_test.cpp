#include "axonn/use/rewards/reward_program.h"

#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/clock.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::vector<std::string> numbered(int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) lines.push_back(std::to_string(i));
  return lines;
}

}  // namespace

TEST(RewardProgram, RepliesToEachLineInOrderWithAnyNumberOfWorkers) {
  for (const int workers : {1, 3}) {
    RewardProgram program(
        {.command = "while read line; do echo \"r$line\"; done", .workers = workers});
    for (int call = 0; call < 2; ++call) {
      const std::vector<ProgramReply> replies = program.ask(numbered(20));
      ASSERT_EQ(replies.size(), 20);
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(replies[i].line, "r" + std::to_string(i));
        EXPECT_THAT(replies[i].fault, IsEmpty());
      }
    }
  }
}

TEST(RewardProgram, GivesALineAgainToOneThatDied) {
  test::TemporaryPath folder;
  // Dies at the first line 3 that it sees, and never again.
  const std::string mark = folder / "mark";
  RewardProgram program({.command = "while read line; do if [ $line = 3 ] && [ ! -e " + mark +
                                    " ]; then touch " + mark + "; exit 1; fi; echo $line; done"});
  const std::vector<ProgramReply> replies = program.ask(numbered(6));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(replies[i].line, std::to_string(i));
}

TEST(RewardProgram, LosesNoMoreThanTheLineAtWhichItAlwaysDies) {
  RewardProgram program(
      {.command = "while read line; do [ $line = 3 ] && exit 1; echo $line; done", .workers = 2});
  const std::vector<ProgramReply> replies = program.ask(numbered(6));
  for (int i = 0; i < 6; ++i) {
    const bool dies = i == 3;
    EXPECT_THAT(replies[i].fault, HasSubstr(dies ? "ended without a reply" : ""));
    EXPECT_EQ(replies[i].line, dies ? "" : std::to_string(i));
  }
}

TEST(RewardProgram, KillsWhatTakesTooLong) {
  RewardProgram program(
      {.command = "while read line; do [ $line = 1 ] && sleep 600; echo $line; done",
       .seconds = 0.3});
  const double start = now_seconds();
  const std::vector<ProgramReply> replies = program.ask(numbered(3));
  EXPECT_LT(now_seconds() - start, 60);
  EXPECT_EQ(replies[0].line, "0");
  EXPECT_THAT(replies[1].fault, HasSubstr("no reply in 0.3 seconds"));
  EXPECT_EQ(replies[2].line, "2");
}

TEST(RewardProgram, IsSurvivedIfItCannotBeRunOrReadsNothing) {
  RewardProgram missing({.command = "exec /no/such/program 2> /dev/null"});
  for (const ProgramReply& reply : missing.ask(numbered(3)))
    EXPECT_THAT(reply.fault, HasSubstr("ended without a reply"));
  RewardProgram deaf({.command = "exec sleep 600", .seconds = 0.2});
  const std::string long_line(1 << 20, 'a');  // more than a pipe holds
  EXPECT_THAT(deaf.ask({long_line})[0].fault, HasSubstr("no reply in"));
}

TEST(RewardProgram, ThatWritesMoreThanALineDoesNotAnswerTheNextOneWithIt) {
  RewardProgram program({.command = "while read line; do printf \"$line\\nmore\\n\"; done"});
  const std::vector<ProgramReply> replies = program.ask(numbered(3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(replies[i].line, std::to_string(i));
}
