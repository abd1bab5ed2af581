#include "axonn/ranks/parallel/attachments.h"

#include <gmock/gmock.h>

using namespace axonn;

namespace {

struct Notes {
  int value = 0;
};

struct OtherNotes {
  int value = 0;
};

}  // namespace

TEST(Attachments, AreFoundByTheirTypeTheLastOneFirst) {
  Attachments all;
  EXPECT_EQ(all.find<Notes>(), nullptr);
  all.attach(std::make_shared<Notes>(Notes{1}));
  all.attach(std::make_shared<OtherNotes>(OtherNotes{2}));
  EXPECT_EQ(all.find<Notes>()->value, 1);
  EXPECT_EQ(all.find<OtherNotes>()->value, 2);
  all.attach(std::make_shared<Notes>(Notes{3}));
  EXPECT_EQ(all.find<Notes>()->value, 3);
}

TEST(Attachments, OfACopyAreNotInTheOriginalAndLiveAsLongAsTheCopy) {
  const auto notes = std::make_shared<Notes>();
  const Attachments original;
  {
    Attachments copy = original;
    copy.attach(notes);
    const Attachments later = copy;
    EXPECT_EQ(later.find<Notes>(), notes.get());
    EXPECT_EQ(original.find<Notes>(), nullptr);
    EXPECT_EQ(notes.use_count(), 2);
  }
  EXPECT_EQ(notes.use_count(), 1);
}
