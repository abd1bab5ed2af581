#include "axonn/app/supervise/nodes.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(Nodes, OfSlurmsListsAreTheirNames) {
  EXPECT_THAT(expand_nodes("nid[001-003,010],login1"),
              ElementsAre("nid001", "nid002", "nid003", "nid010", "login1"));
  EXPECT_THAT(expand_nodes("r[1-2]n[08-10]x"),
              ElementsAre("r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"));
  EXPECT_THAT(expand_nodes("a,,b"), ElementsAre("a", "b"));
  EXPECT_THAT(expand_nodes(""), IsEmpty());
  for (const char* bad : {"a[1", "a]1[", "a[[1]]", "a[x]", "a[3-1]", "a[1-]", "a[-2]"})
    EXPECT_THROW(expand_nodes(bad), UsageError) << bad;
  EXPECT_THAT([] { expand_nodes("a[1-100001]"); },
              ThrowsMessage<UsageError>(HasSubstr("more than 100000 names")));
}

TEST(Nodes, OfAStartAreThoseThatAreLeft) {
  NodePool pool({"a", "b", "c", "d"}, 1, 2);
  EXPECT_THAT(pool.next(), ElementsAre("a", "b", "c"));
  pool.exclude("b");
  EXPECT_THAT(pool.next(), ElementsAre("a", "c", "d"));
  EXPECT_FALSE(pool.blame("c"));
  EXPECT_THAT(pool.next(), ElementsAre("a", "c", "d")) << "once may have been chance";
  EXPECT_TRUE(pool.blame("c"));
  EXPECT_THAT(pool.next(), ElementsAre("a", "d")) << "a smaller start";
  pool.exclude("a");
  EXPECT_THAT(pool.next(), IsEmpty()) << "less than the least";
  EXPECT_THAT(pool.left(), ElementsAre("d"));
}

TEST(Nodes, OnWhichAStartFailedAreThoseThatWait) {
  NodePool pool({"a", "b", "c", "d"}, 2, 0);
  EXPECT_THAT(pool.next(), ElementsAre("a", "b"));
  pool.blame("a");
  EXPECT_THAT(pool.next(), ElementsAre("b", "c"));
}

TEST(Nodes, AreFoundInATextAsWholeWords) {
  const NodePool pool({"n1", "n11", "x"}, 0, 0);
  EXPECT_THAT(pool.named_in("rank 3 on n11.cluster hangs; x-y waits"), ElementsAre("n11"));
  EXPECT_THAT(pool.named_in("n1: gone, and x."), ElementsAre("n1", "x"));
  EXPECT_THAT(pool.named_in(""), IsEmpty());
}

TEST(Nodes, OfAnImpossibleChoiceAreRefused) {
  EXPECT_THAT(
      [] {
        NodePool({"a", "b"}, 2, 0);
      },
      ThrowsMessage<UsageError>(HasSubstr("--spares 2 of 2 nodes")));
  EXPECT_THAT(
      [] {
        NodePool({"a", "b"}, 1, 2);
      },
      ThrowsMessage<UsageError>(HasSubstr("--least 2")));
}
